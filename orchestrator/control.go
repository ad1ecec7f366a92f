package orchestrator

import (
	"context"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Control steers and inspects one job: put a new one into Config.Control before Run.
// Its methods are safe to call from any goroutine, also before the job starts and after
// it ends. To stop a job, cancel Run's context.
type Control struct {
	mu      sync.Mutex
	job     *job          // nil before and after the job
	resume  chan struct{} // closed by Resume; nil unless paused
	last    Snapshot      // of a job that has ended
	monitor *gpu.Monitor  // nil unless GPUs are monitored
	// trimming allows one Trim at a time: responses carry no number.
	trimming sync.Mutex
}

// Phase is the phase of a job or of one of its workers.
type Phase string

// The phases of a job, and the additional phases of a worker: opening its kernel,
// computing, waiting for files that are fetched, held back by a server, waiting for work, lost
// and not replaced, and gone because its device is better off without it.
const (
	PhasePreparing Phase = "preparing"
	PhaseRunning   Phase = "running"
	PhasePaused    Phase = "paused"
	PhaseStopping  Phase = "stopping"
	PhaseEnded     Phase = "ended"

	PhaseOpening   Phase = "opening"
	PhaseComputing Phase = "computing"
	PhaseFetching  Phase = "fetching"
	PhaseHeld      Phase = "held"
	PhaseWaiting   Phase = "waiting"
	PhaseRetired   Phase = "retired"
	PhaseLeft      Phase = "left"
)

// Awaits is what keeps a worker's kernel from computing: the files of the next records, or a
// server that cannot be reached or asks for a pause.
type Awaits = wire.Awaits

// What a kernel may wait for.
const (
	AwaitsFiles  = wire.AwaitsFiles
	AwaitsServer = wire.AwaitsServer
)

// PhaseOf returns the phase of a worker with records to compute.
func PhaseOf(awaits Awaits) Phase {
	switch awaits {
	case AwaitsFiles:
		return PhaseFetching
	case AwaitsServer:
		return PhaseHeld
	}
	return PhaseComputing
}

// HasRecords reports whether a worker in this phase has records to compute.
func (p Phase) HasRecords() bool {
	return p == PhaseComputing || p == PhaseFetching || p == PhaseHeld
}

// AllIn reports whether every worker that the job still has is in this phase.
func (s Snapshot) AllIn(p Phase) bool {
	found := false
	for _, w := range s.Workers {
		if w.Phase != p && w.Phase != PhaseRetired && w.Phase != PhaseLeft {
			return false
		}
		found = found || w.Phase == p
	}
	return found
}

// Snapshot is a job's state at one moment. It is a value: nothing in it changes.
type Snapshot struct {
	Phase   Phase     `json:"phase"`
	Input   string    `json:"input,omitempty"`
	Output  string    `json:"output,omitempty"`
	Kernel  string    `json:"kernel,omitempty"`
	Folder  string    `json:"folder,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Done counts the finished records, including those of earlier runs. Total is -1
	// while unknown.
	Done  chunk.Counts `json:"done"`
	Total int64        `json:"total"`
	// Answers of further records are logged, and are not computed again.
	Answers int64 `json:"answers,omitempty"`
	// Estimate: see [Progress].
	Estimate int64 `json:"estimate,omitempty"`
	// Resumed records were done by earlier runs, and ResumedAnswers logged.
	Resumed        int64 `json:"resumed"`
	ResumedAnswers int64 `json:"resumed_answers,omitempty"`
	// Rate is records per second since the start of this run.
	Rate      float64          `json:"records_per_second"`
	BatchSize int              `json:"batch_size,omitempty"`
	Workers   []WorkerSnapshot `json:"workers,omitempty"`
}

// WorkerSnapshot is one slot's state at one moment.
type WorkerSnapshot struct {
	Slot int    `json:"slot"`
	Name string `json:"name"`
	// GPUs are the UUIDs of its devices, where known.
	GPUs  []string `json:"gpus,omitempty"`
	PID   int      `json:"pid,omitempty"`
	Phase Phase    `json:"phase"`
	// Done of Records of its chunk, or of its chunks, are computed.
	Done    int64 `json:"chunk_done"`
	Records int64 `json:"chunk_records"`
}

// Pause makes every worker stop at its next batch boundary and wait there. Results so
// far are committed; processes, models and device memory stay. It reports whether the
// job was not paused already.
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
	for _, w := range j.fleet.workers() { // their slots give them no other chunk
		w.endChunk()
	}
	return true
}

// Resume continues a paused job. It reports whether the job was paused.
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

// paused returns a channel that is closed when the job continues, or nil if the job is
// not paused. A job without a Control is never paused.
func (c *Control) paused() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume
}

// Snapshot returns the job's current state.
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

// MonitorSettings returns the settings of the job's monitor by their names in the
// configuration file; nil if no GPU is monitored.
func (c *Control) MonitorSettings() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.monitor == nil {
		return nil
	}
	return c.monitor.Config().Settings()
}

// ConfigureMonitor changes settings of the job's monitor, all of them or, on error, none.
// They apply from the next sample on. Errors are KindUsage, or KindConflict if no GPU is
// monitored.
func (c *Control) ConfigureMonitor(changes map[string]any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.monitor == nil {
		return fault.New(fault.Conflict, "the job monitors no GPU")
	}
	return c.monitor.Configure(changes)
}

// watch gives access to the monitor.
func (c *Control) watch(m *gpu.Monitor) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.monitor = m
}

// Trimmed is the result of asking one worker's kernel to free memory.
type Trimmed struct {
	Device string `json:"device"`
	// Fault is why it did not; nil if it did.
	Fault *fault.Error `json:"fault,omitempty"`
}

// Trim asks every kernel of the job to free device memory that it caches but does not
// need, at its next batch boundary. It waits for all of them or for the end of ctx.
func (c *Control) Trim(ctx context.Context) []Trimmed {
	c.trimming.Lock()
	defer c.trimming.Unlock()
	c.mu.Lock()
	j := c.job
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	workers := j.fleet.workers()
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

// attach makes j the controlled job, and reports whether it was paused before it started;
// detach keeps its last snapshot.
func (c *Control) attach(j *job) (paused bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job = j
	return c.resume != nil
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

// awaitResume waits while the job is paused and work remains.
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

func (j *job) snapshot(paused bool) Snapshot {
	s := j.ledger.snapshot()
	switch {
	case !j.state.running():
		s.Phase = PhaseStopping
	case paused:
		s.Phase = PhasePaused
	}
	s.Workers = j.fleet.snapshot(paused)
	return s
}

func (f *fleet) snapshot(paused bool) (list []WorkerSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		list = append(list, m.snapshot(paused))
	}
	return list
}

func (m *member) snapshot(paused bool) WorkerSnapshot {
	w := WorkerSnapshot{Slot: m.slot.Number, Name: m.slot.Name, Phase: PhaseWaiting, Done: m.done, Records: m.size}
	for _, device := range m.slot.Devices {
		if device.UUID != "" {
			w.GPUs = append(w.GPUs, device.UUID)
		}
	}
	if m.worker != nil {
		w.PID = m.worker.pid
	}
	switch {
	case m.retired:
		w.Phase = PhaseRetired
	case m.worker != nil && m.report.ready.IsZero():
		w.Phase = PhaseOpening
	case m.pace == 0: // its device is too hot
		w.Phase = PhasePaused
	case m.size > 0:
		w.Phase = PhaseOf(m.awaits)
	case paused:
		w.Phase = PhasePaused
	}
	return w
}

// trim asks a worker's kernel to free memory and waits for the response.
func (w *workerProcess) trim(ctx context.Context) *fault.Error {
	select {
	case <-w.trimmed: // a late response to a caller that stopped waiting
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
