package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/queue"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// Fleet runs the slots of a job.
type Fleet struct {
	Options
	queue    *queue.Queue // what is to be computed
	roster   *roster      // who computes it
	ledger   *ledger      // what has become of it
	monitor  *deviceMonitor
	suspects *suspects     // devices on which records fail
	leader   *layoutLeader // decides the layout of columns
	state    state
	stagger  *stagger // nil: all kernels open at once
	crew     *crew
	scaler   *scaler.Scaler
	tuned    *tunedSizes
	numbers  atomic.Int64 // of tasks and folders, each used once
	answered atomic.Bool  // the kernel has responded: a batch has finished, successfully or not
	notices  notices
}

// New returns a fleet that has not started.
func New(o Options) *Fleet {
	f := &Fleet{
		Options: o, queue: queue.New(o.Source, o.Check), roster: newRoster(o.Registry, o.HandBack, o.Lane.Logged),
		leader: newLayoutLeader(o), tuned: newTunedSizes(o.TunedFile), notices: notices{emit: o.Emit},
	}
	f.ledger, f.crew = newLedger(o, f.roster), &crew{fleet: f}
	f.suspects = &suspects{fleet: f, mu: &f.roster.mu, devices: make(map[string]*suspect)}
	f.monitor = &deviceMonitor{roster: f.roster, emit: o.Emit}
	for _, slot := range o.Slots {
		f.roster.join(slot)
	}
	if o.Stagger {
		f.stagger = newStagger()
	}
	o.Scaling.Cores, o.Scaling.Emit, o.Scaling.Own = o.Process.Cores, o.Emit, isOurs
	f.scaler = scaler.New(f.crew, o.Scaling)
	return f
}

// Run computes all chunks, as far as devices and the state of the job permit, and returns when
// all workers have exited. It returns an error only for what must stop the whole job. A failed
// record, worker or device is a value, never an error of a slot, or it would cancel its healthy
// siblings.
func (f *Fleet) Run(ctx context.Context) error {
	monitored, stop := context.WithCancel(ctx)
	wait, err := f.monitor.start(monitored, f.Options)
	defer func() { stop(); wait() }()
	if err != nil {
		return err
	}
	if f.Pool == nil { // otherwise it keeps workers that templates have forked
		defer f.Templates.Close()
	}
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, f.queue.Close)()
	f.crew.group, f.crew.ctx = group, ctx
	f.crew.startAll(f.Slots)
	if len(f.Slots) == 0 { // an input without records: no slot reads it to its end
		group.Go(func() error { _, _, err := f.queue.Take(ctx, "", 0); return err })
	}
	balancing := make(chan struct{})
	go f.balance(balancing)
	f.crew.slots.Wait()
	f.queue.Close()
	f.queue.Readers.Wait()
	f.release(ctx, true)
	close(balancing)
	f.Delivered()
	return group.Wait()
}

// Running reports whether the job was not asked to end.
func (f *Fleet) Running() bool { return f.state.running() }

// Reason returns the limit or the verdict that ended the job, nil if there is none.
func (f *Fleet) Reason() *fault.Error { return f.state.reason() }

// Unfinished reports whether work remains that no slot will do; Exhausted says why.
func (f *Fleet) Unfinished() bool        { return f.queue.Unfinished() }
func (f *Fleet) Exhausted() *fault.Error { return f.roster.exhausted() }

// Total returns the number of records, -1 while unknown.
func (f *Fleet) Total() int64 { return f.ledger.total() }

// Report is what a fleet has done.
type Report struct {
	Totals
	Tally   chunk.Tally // what was delivered, including earlier runs
	Workers []event.WorkerReport
	Scaling []event.ScalingReport
	Health  []gpu.Health // of the GPUs that were monitored
	Opened  time.Time    // when the first kernel was open; zero if none was
	Stuck   []proc.Stuck // processes that cannot be killed
}

// Close returns the report of an ended job, which leaves answers in its logs.
func (f *Fleet) Close(answers int64) Report {
	r := f.ledger.close(answers)
	r.Scaling, r.Health, r.Stuck = f.scaler.Report(), f.monitor.monitor.Status(), f.roster.stuck()
	return r
}

// Drain asks every worker to end at its next batch boundary, or without the batches in
// flight if those take longer than the timeout. why is nil for a request.
func (f *Fleet) Drain(why *fault.Error, timeout time.Duration) {
	if !f.state.drain(why) {
		return
	}
	f.Emit(event.Stopping{Drain: timeout})
	f.queue.Close()
	for _, w := range f.roster.workers(everyone) {
		w.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: timeout}})
	}
	time.AfterFunc(timeout+drainGrace, func() { // chunks that have not ended go back unchanged
		for _, w := range f.roster.workers(computing) {
			w.Abandon()
		}
	})
}

// drainGrace is how much longer than a batch a worker may take before it is killed:
// time to kill a kernel and close a part.
const drainGrace = 10 * time.Second

// Stop ends the job at once and discards what is being computed. why is nil for a request.
func (f *Fleet) Stop(why *fault.Error) {
	f.state.stop(why)
	f.Abort()
}

// EndChunks makes every worker end its chunks at the next batch boundary.
func (f *Fleet) EndChunks() {
	for _, w := range f.roster.workers(everyone) {
		w.EndChunk()
	}
}

// MarkRest passes the segments of all chunks that no device is left to compute, marked as
// failed, to commit.
func (f *Fleet) MarkRest(ctx context.Context, e *fault.Error, commit func(chunk.Segment) error) error {
	why := fault.GPULost.New("not computed: %s", e.Message).WithDetail(e.Detail)
	keep := func(c chunk.Chunk, s chunk.Segment) error {
		f.ledger.commit(s.Tally)
		f.Source.Release(c)
		return commit(s)
	}
	for _, s := range f.suspects.removeAll() { // no device is left to compute them again
		if err := keep(s.task.Chunk, s.done.Segment); err != nil {
			return err
		}
		f.queue.GiveBack()
	}
	return f.queue.Rest(ctx, func(t queue.Task) error {
		segment, err := f.giveUp(ctx, t, why)
		if err != nil {
			return err
		}
		return keep(t.Chunk, segment)
	})
}

// Trim asks every kernel to free device memory that it caches but does not need, at its next
// batch boundary, and waits for all of them or for the end of ctx. It must not run twice at a
// time: responses carry no number.
func (f *Fleet) Trim(ctx context.Context) []event.Trimmed {
	workers := f.roster.workers(everyone)
	results := make([]event.Trimmed, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() { results[i] = event.Trimmed{Device: w.Label, Fault: w.Trim(ctx)} })
	}
	all.Wait()
	return results
}

// release delivers the segments that may be committed. If the kernel fails on everything, the
// job stops instead: what is being computed is useless. end: all workers are done, and the
// evidence about the kernel is complete.
func (f *Fleet) release(ctx context.Context, end bool) {
	segments, why := f.ledger.release(end, !f.state.running())
	if why != nil {
		f.Stop(why)
		return
	}
	f.Deliver(ctx, segments)
}

// checkFailures drains the job when more records failed than the user allows. Those of
// earlier runs do not count: a user who resumes has seen them.
func (f *Fleet) checkFailures() {
	if f.Halt == nil {
		return
	}
	done, before := f.ledger.done(), f.Before
	if len(gpusOf(f.Slots)) > 1 { // those in progress may be a device's fault
		done = f.ledger.finished()
	}
	failed, records := done.Failed-before.Failed, done.Records-before.Records
	if f.Halt(failed, records, f.ledger.total()) {
		f.Drain(fault.LimitReached.New("stopped because %d of %d records failed", failed, records).Set("halt"), f.DrainTimeout)
	}
}

// chunkDone reports a segment that is booked, and releases its input. ahead and held are what
// its slot has besides, as in [event.ChunkDone].
func (f *Fleet) chunkDone(r result, ahead, held int64) {
	slot, segment := r.member.slot, r.done.Segment
	job, answers := f.ledger.counts()
	f.Emit(event.ChunkDone{
		Slot: slot.Number, Device: slot.Name, First: r.task.Chunk.First, Counts: segment.Tally,
		Job: job, Answers: answers, Ahead: ahead, Held: held, Computed: r.member.computed(),
		Total: f.ledger.total(), Estimate: f.ledger.estimate(), Stats: event.NewSegmentStats(r.done.Stats), Usage: f.Usage(),
	})
	finished := r.task.Chunk
	finished.Records = segment.Tally.Records
	f.Source.Release(finished)
}

// reportLeft reports that a slot has left the job.
func (f *Fleet) reportLeft(slot event.Slot) {
	job, answers := f.ledger.counts()
	f.Emit(event.WorkerLeft{Slot: slot.Number, Device: slot.Name, Job: job, Answers: answers})
}

// maxWarnings bounds the notices that kernels cause; the workers' logs have all of them.
const maxWarnings = 5

// notices are what the user is shown once, by a name or, for the warnings of kernels, by their
// shape: workers that warn of the same thing are one notice.
type notices struct {
	emit     func(event.Event)
	shown    sync.Map
	warnings atomic.Int32
}

// warn shows what a kernel has to report although no record fails.
func (n *notices) warn(slot event.Slot, list []string) {
	for _, text := range list {
		if n.warnings.Load() < maxWarnings && n.isNew(fault.Shape(text)) {
			n.warnings.Add(1)
			n.emit(event.Notice{Text: slot.Name + ": warning: " + text})
		}
	}
}

// isNew reports whether a notice is to be shown, and records that it is.
func (n *notices) isNew(what string) bool {
	_, shown := n.shown.LoadOrStore(what, true)
	return !shown
}
