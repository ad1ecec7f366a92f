package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
)

// Fleet runs the slots of a job. Each of its parts has its own lock.
type Fleet struct {
	Options
	queue    *queue  // what is to be computed
	roster   *roster // who computes it
	ledger   *ledger // what has become of it
	monitor  *deviceMonitor
	suspects *suspects     // devices on which records fail
	leader   *layoutLeader // decides the layout of columns
	state    state
	stagger  *stagger // nil: all kernels open at once
	crew     *crew
	scaler   *scaler.Scaler // nil: the number of workers is fixed
	tuned    *tunedSizes
	// assignments counts the tasks that were given to workers: a number is its ID.
	assignments atomic.Int64

	stall        stall
	searchNotice sync.Once // that a whole batch failed
	// blamelessNotice is that a batch failed although none of its records does.
	blamelessNotice sync.Once
	warnings        warnings
	stuck           stuckList
}

// New returns a fleet that has not started.
func New(o Options) *Fleet {
	f := &Fleet{
		Options: o, queue: newQueue(o.Source), roster: newRoster(o.Registry, o.HandBack, o.Lane.Logged), ledger: newLedger(o),
		suspects: newSuspects(), leader: newLayoutLeader(), tuned: newTunedSizes(o.TunedFile),
	}
	f.queue.check = o.Check
	f.monitor = &deviceMonitor{roster: f.roster, emit: o.Emit}
	for _, slot := range o.Slots {
		f.roster.join(slot)
	}
	if o.Stagger {
		f.stagger = newStagger()
	}
	f.crew = &crew{fleet: f}
	if o.Scaling != nil {
		scaling := *o.Scaling
		scaling.Cores, scaling.Emit = o.Process.Cores, o.Emit
		f.scaler = scaler.New(f.crew, o.Slots, scaling)
	}
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
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, f.queue.close)()
	f.crew.group, f.crew.ctx = group, ctx
	f.crew.startAll(f.Slots)
	if len(f.Slots) == 0 { // an input without records: no slot reads it to its end
		group.Go(func() error { _, _, err := f.queue.take(ctx, "", 0); return err })
	}
	balancing := make(chan struct{})
	go f.balance(balancing)
	f.crew.slots.Wait()
	f.queue.close()
	f.queue.readers.Wait()
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
func (f *Fleet) Unfinished() bool        { return f.queue.unfinished() }
func (f *Fleet) Exhausted() *fault.Error { return f.roster.exhausted() }

// Drain asks every worker to end at its next batch boundary, or without the batches in
// flight if those take longer than the timeout. why is nil for a request.
func (f *Fleet) Drain(why *fault.Error, timeout time.Duration) {
	if !f.state.drain(why) {
		return
	}
	f.Emit(event.Stopping{Drain: timeout})
	f.queue.close()
	for _, w := range f.roster.workers() {
		w.Send(wire.Message{Stop: &wire.Stop{Job: true, Drain: timeout}})
	}
	time.AfterFunc(timeout+drainGrace, func() { // chunks that have not ended go back unchanged
		for _, w := range f.roster.computing() {
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
	for _, w := range f.roster.workers() {
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
	for _, s := range f.suspects.takeAll() { // no device is left to compute them again
		if err := keep(s.task.chunk, s.done.Segment); err != nil {
			return err
		}
		f.queue.giveBack()
	}
	return f.queue.rest(ctx, func(t task) error {
		segment, err := f.giveUp(ctx, t, why)
		if err != nil {
			return err
		}
		return keep(t.chunk, segment)
	})
}

// awaitResume waits while the job is paused and work remains.
func (f *Fleet) awaitResume(ctx context.Context) {
	for {
		resumed := f.Paused()
		if resumed == nil {
			return
		}
		select {
		case <-resumed:
		case <-f.queue.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Trim asks every kernel to free device memory that it caches but does not need, at its next
// batch boundary, and waits for all of them or for the end of ctx. It must not run twice at a
// time: responses carry no number.
func (f *Fleet) Trim(ctx context.Context) []event.Trimmed {
	workers := f.roster.workers()
	results := make([]event.Trimmed, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() { results[i] = event.Trimmed{Device: w.Label, Fault: w.Trim(ctx)} })
	}
	all.Wait()
	return results
}
