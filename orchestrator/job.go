package orchestrator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
)

// job is a running job: what was prepared, and the parts that run it. Each part has its
// own lock.
type job struct {
	*prepared
	folder    *folder
	queue     *queue     // what is to be computed
	fleet     *fleet     // who computes it
	ledger    *ledger    // what has become of it
	committer *committer // the way into the output
	monitor   *deviceMonitor
	sources   *sources
	suspects  *suspects     // devices on which records fail
	leader    *layoutLeader // decides the layout of columns
	// assignments counts the tasks that were given to workers: a number is its ID.
	assignments atomic.Int64
	state       state
	abort       context.CancelFunc // ends what the job is doing
	stagger     *stagger           // nil: all kernels open at once
	scaler      *scaler            // nil: the number of workers is fixed
	tuned       *tunedSizes

	stall        stall
	searchNotice sync.Once // that a whole batch failed
	// blamelessNotice is that a batch failed although none of its records does.
	blamelessNotice sync.Once
	warnings        warnings
	stuck           stuckList
}

func newJob(p *prepared, f *folder, output *commit.Output, started time.Time) *job {
	j := &job{
		prepared: p, folder: f, queue: newQueue(p.source),
		fleet: newFleet(p.registry, p.config.handBack, p.plan.Info.Concurrency > 0), ledger: newLedger(p, f.path, started),
	}
	j.queue.check, j.suspects = p.checkFirst, newSuspects()
	j.committer = &committer{
		prepared: p, folder: f, output: output, ledger: j.ledger,
		segments: make(chan chunk.Segment, 64),
	}
	j.monitor = &deviceMonitor{fleet: j.fleet, events: p.emitter}
	j.sources, j.leader = &sources{prepared: p, folder: f}, newLayoutLeader()
	for _, slot := range p.plan.Slots {
		j.fleet.join(slot)
	}
	if p.staggers() {
		j.stagger = newStagger()
	}
	j.scaler, j.tuned = newScaler(j), newTunedSizes(p, f)
	return j
}

func (j *job) run(ctx context.Context) (Report, error) {
	paused := j.config.Control.attach(j)
	defer j.config.Control.detach()
	j.announce()
	if paused {
		j.emit(Paused{})
	}
	err := j.checkSpend()
	if err == nil {
		err = j.work(ctx)
	}
	err = j.conclude(ctx, err)
	err = j.committer.close(err)
	return j.finish(err), err
}

// announce emits what is known before the work starts.
func (j *job) announce() {
	if !j.config.checkAll { // otherwise it was already emitted
		j.emit(Planned{Plan: j.plan, Folder: j.folder.path, First: j.config.Input.Offset})
	}
	for _, note := range j.plan.Notes {
		j.emit(Notice{Text: note})
	}
	if j.earlier == nil {
		return
	}
	for _, note := range j.earlier.notes {
		j.emit(Notice{Text: note})
	}
	if j.earlier.computedAny() || j.earlier.answers > 0 {
		j.emit(j.ledger.resuming(finishedRanges(j.earlier.state)))
	}
}

// work runs the slots and the committer. The group's context ends only for what must
// stop the whole job. A failed record, worker or device is a value, never an error of a
// group's goroutine, or it would cancel its healthy siblings.
func (j *job) work(ctx context.Context) error {
	rootCtx, abort := context.WithCancel(context.Background())
	defer abort()
	j.abort = abort
	ctx, cancel := j.limitTime(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { j.stopBy(ctx) })()
	go j.obeyAbort(rootCtx)
	stopMonitor, err := j.monitor.start(rootCtx, j.config)
	if err != nil {
		return err
	}
	defer func() { abort(); stopMonitor() }()
	group, abortCtx := errgroup.WithContext(rootCtx)
	defer context.AfterFunc(abortCtx, j.queue.close)()
	c := &crew{job: j, group: group, ctx: abortCtx}
	c.startAll(j.plan.Slots)
	group.Go(j.committer.run)
	checksOutput := j.earlier != nil && j.earlier.check != nil
	if checksOutput {
		group.Go(func() error { return j.awaitOutputCheck(ctx, abortCtx) })
	}
	if len(j.plan.Slots) == 0 { // an input without records: no slot reads it to its end
		group.Go(func() error { _, _, err := j.queue.take(abortCtx, "", 0); return err })
	}
	balancing := make(chan struct{})
	go j.balance(balancing)
	c.slots.Wait()
	j.queue.close()
	j.queue.readers.Wait()
	if checksOutput && (!j.state.running() || j.queue.unfinished()) {
		j.earlier.check.cancel() // its result is no longer needed
	}
	j.releaseLast(abortCtx)
	close(balancing)
	close(j.committer.segments)
	committed := make(chan error, 1)
	go func() { committed <- group.Wait() }()
	select {
	case err := <-committed:
		return err
	case <-j.config.Abort:
		c.workers.Wait()
		return j.committer.last(committed)
	}
}
