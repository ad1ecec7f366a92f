package orchestrator

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Control is a hand on one job: a new one goes into Config.Control before Run. Its
// methods may be called from any goroutine, before the job has begun and after it
// has ended. To stop a job, end Run's context.
type Control struct {
	mu     sync.Mutex
	job    *job          // nil before and after
	resume chan struct{} // closed by Resume; nil while nothing is paused
	last   Snapshot      // of a job that has ended
	// trimming lets one Trim go on at a time: answers carry no number.
	trimming sync.Mutex
}

// Phase is where a job is, or a worker of it.
type Phase string

// The phases of a job, and those of a worker beside: opening its kernel, computing,
// waiting for work, lost and not replaced.
const (
	PhasePreparing Phase = "preparing"
	PhaseRunning   Phase = "running"
	PhasePaused    Phase = "paused"
	PhaseStopping  Phase = "stopping"
	PhaseEnded     Phase = "ended"

	PhaseOpening   Phase = "opening"
	PhaseComputing Phase = "computing"
	PhaseWaiting   Phase = "waiting"
	PhaseRetired   Phase = "retired"
)

// Snapshot is a job at one moment. It is a value: nothing in it changes.
type Snapshot struct {
	Phase   Phase     `json:"phase"`
	Input   string    `json:"input,omitempty"`
	Output  string    `json:"output,omitempty"`
	Kernel  string    `json:"kernel,omitempty"`
	Folder  string    `json:"folder,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Done is what is done of the job, earlier runs included; Total -1 while it is
	// not known.
	Done    chunk.Counts `json:"done"`
	Total   int64        `json:"total"`
	Resumed int64        `json:"resumed"`
	// Rate is records a second since the start of this run.
	Rate      float64          `json:"records_per_second"`
	BatchSize int              `json:"batch_size,omitempty"`
	Workers   []WorkerSnapshot `json:"workers,omitempty"`
}

// WorkerSnapshot is one slot at one moment.
type WorkerSnapshot struct {
	Slot   int    `json:"slot"`
	Device string `json:"device"`
	// GPUs are the UUIDs of its devices, as far as they have any.
	GPUs  []string `json:"gpus,omitempty"`
	PID   int      `json:"pid,omitempty"`
	Phase Phase    `json:"phase"`
	// Done of Records of its chunk are computed.
	Done    int64 `json:"chunk_done"`
	Records int64 `json:"chunk_records"`
}

// Pause lets every worker stop at its next batch border and wait there. What it has
// computed is committed; processes, models and device memory stay. It reports
// whether that is new.
func (c *Control) Pause() bool {
	c.mu.Lock()
	j, paused := c.job, c.resume != nil
	if !paused {
		c.resume = make(chan struct{})
	}
	c.mu.Unlock()
	if paused || j == nil {
		return !paused
	}
	j.emit(Paused{})
	for _, w := range j.workers() { // their slots give them no other chunk
		w.endChunk()
	}
	return true
}

// Resume lets a paused job go on. It reports whether it was paused.
func (c *Control) Resume() bool {
	c.mu.Lock()
	j, resume := c.job, c.resume
	c.resume = nil
	c.mu.Unlock()
	if resume == nil {
		return false
	}
	if j != nil {
		j.emit(Resumed{})
	}
	close(resume)
	return true
}

// paused is closed when the job goes on; nil if it is not paused. A job without a
// Control never is.
func (c *Control) paused() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume
}

// Snapshot tells how the job is.
func (c *Control) Snapshot() Snapshot {
	c.mu.Lock()
	j, last, paused := c.job, c.last, c.resume != nil
	c.mu.Unlock()
	if j == nil {
		if last.Phase == "" {
			return Snapshot{Phase: PhasePreparing, Total: -1}
		}
		return last
	}
	return j.snapshot(paused)
}

// Trimmed is what became of asking one worker's kernel to give memory back.
type Trimmed struct {
	Device string `json:"device"`
	// Fault says why it did not; nil if it did.
	Fault *fault.Error `json:"fault,omitempty"`
}

// Trim asks every kernel of the job to give back the device memory that it keeps
// and does not need, at its next batch border, and waits for all of them or the end
// of ctx.
func (c *Control) Trim(ctx context.Context) []Trimmed {
	c.trimming.Lock()
	defer c.trimming.Unlock()
	c.mu.Lock()
	j := c.job
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	workers := j.workers()
	results := make([]Trimmed, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			results[i] = Trimmed{Device: w.label, Fault: w.trim(ctx)}
		}()
	}
	all.Wait()
	return results
}

// attach makes a job the one that is steered; detach keeps how it was.
func (c *Control) attach(j *job) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job = j
}

func (c *Control) detach() {
	if c == nil {
		return
	}
	last := c.Snapshot()
	last.Phase = PhaseEnded
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job, c.last = nil, last
}

// awaitResume waits while the job is paused, and not longer than there is work.
func (j *job) awaitResume(ctx context.Context) {
	for {
		resumed := j.config.Control.paused()
		if resumed == nil {
			return
		}
		select {
		case <-resumed:
		case <-j.queue.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (j *job) workers() (list []*workerProcess) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.slots {
		if w := j.slots[i].worker; w != nil {
			list = append(list, w)
		}
	}
	return list
}

func (j *job) snapshot(paused bool) Snapshot {
	total := j.total()
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Snapshot{
		Phase: PhaseRunning, Input: j.report.Input, Output: j.report.Output, Kernel: j.report.Kernel,
		Folder: j.report.Folder, Started: j.report.Started, Done: j.done(), Total: total,
		Resumed: j.report.Resumed, BatchSize: j.plan.BatchSize,
	}
	s.Rate = rate(s.Done.Records-s.Resumed, time.Since(s.Started))
	switch {
	case j.stopping.Load():
		s.Phase = PhaseStopping
	case paused:
		s.Phase = PhasePaused
	}
	for i, slot := range j.plan.Slots {
		s.Workers = append(s.Workers, j.slots[i].snapshot(slot, j.report.Workers[i].ready, paused))
	}
	return s
}

func (s *slotState) snapshot(slot Slot, ready time.Time, paused bool) WorkerSnapshot {
	w := WorkerSnapshot{Slot: slot.Number, Device: slot.Name, Phase: PhaseWaiting, Done: s.live.Records, Records: s.size}
	for _, device := range slot.Devices {
		if device.UUID != "" {
			w.GPUs = append(w.GPUs, device.UUID)
		}
	}
	if s.worker != nil {
		w.PID = s.worker.pid
	}
	switch {
	case s.retired:
		w.Phase = PhaseRetired
	case s.worker != nil && ready.IsZero():
		w.Phase = PhaseOpening
	case s.pace == 0: // its device is too hot
		w.Phase = PhasePaused
	case s.size > 0:
		w.Phase = PhaseComputing
	case paused:
		w.Phase = PhasePaused
	}
	return w
}

// trim asks a worker's kernel for memory and waits for the answer.
func (w *workerProcess) trim(ctx context.Context) *fault.Error {
	select {
	case <-w.trimmed: // the answer to somebody who did not wait for it
	default:
	}
	if err := w.conn.Send(wire.Message{Trim: &wire.Trim{}}); err != nil {
		return fault.New(fault.Worker, "ask the worker: %w", err)
	}
	select {
	case answer := <-w.trimmed:
		return answer.Fault
	case <-ctx.Done():
		return fault.New(fault.Timeout, "no response in time: its batch is still running")
	}
}
