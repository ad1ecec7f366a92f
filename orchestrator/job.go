package orchestrator

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/folder"
)

// job is a running job: what was prepared, and the parts that run it. Each part has its
// own lock.
type job struct {
	*prepared
	folder    *folder.Folder
	fleet     *fleet.Fleet // computes
	committer *committer   // the way into the output
	sources   *sources
	before    chunk.Tally // what earlier runs have done
	started   time.Time
	root      context.Context // ends with what the job is doing
	abort     context.CancelFunc
}

func (j *job) run(ctx context.Context) (Report, error) {
	paused := j.config.Control.attach(j)
	defer j.config.Control.attach(nil)
	j.announce()
	if paused {
		j.config.emit(Paused{})
	}
	err := j.checkSpend()
	if err == nil {
		err = j.work(ctx)
	}
	err = j.conclude(ctx, err)
	if err == nil {
		err = j.sources.adoptLayout()
	}
	err = j.committer.close(err)
	return j.finish(err), err
}

// announce emits what is known before the work starts.
func (j *job) announce() {
	if !j.config.checkAll { // otherwise it was already emitted
		j.config.emit(Planned{Plan: j.plan, Folder: j.folder.Path, First: j.config.Input.Offset})
	}
	for _, note := range slices.Concat(j.plan.Notes, j.earlier.Notes) {
		j.config.notice(note)
	}
	if j.earlier.ComputedAny() || j.earlier.Answers > 0 {
		j.config.emit(Resuming{Done: j.before.Records, Answers: j.earlier.Answers, Job: j.before.Clone(), Ranges: finishedRanges(j.earlier.State), Total: j.fleet.Total()})
	}
}

// work runs the fleet and the committer.
func (j *job) work(ctx context.Context) error {
	defer j.abort()
	ctx, cancel := j.limitTime(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { j.stopBy(ctx) })()
	go func() {
		select {
		case <-j.config.Abort:
			j.fleet.Stop(nil)
		case <-j.root.Done():
		}
	}()
	group, abortCtx := errgroup.WithContext(j.root)
	exited := make(chan struct{})
	group.Go(func() error {
		defer close(exited)
		return j.fleet.Run(abortCtx)
	})
	group.Go(j.committer.run)
	group.Go(func() error { return j.earlier.Check.Await(ctx, abortCtx) })
	committed := make(chan error, 1)
	go func() { committed <- group.Wait() }()
	select {
	case err := <-committed:
		return err
	case <-j.config.Abort:
		<-exited
		return j.committer.last(committed)
	}
}

// delivered is called after the last segment.
func (j *job) delivered() {
	if !j.fleet.Running() || j.fleet.Unfinished() {
		j.earlier.Check.Cancel() // its result is no longer needed
	}
	close(j.committer.segments)
}

var errMaxTime = errors.New("time limit reached")

// limitTime ends ctx after Config.Resume.MaxTime.
func (j *job) limitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.config.Resume.MaxTime <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, j.config.Resume.MaxTime, errMaxTime)
}

// stopBy drains the job for the reason its context ended.
func (j *job) stopBy(ctx context.Context) {
	var why *fault.Error
	if errors.Is(context.Cause(ctx), errMaxTime) {
		why = fault.LimitReached.New("stopped after %s", j.config.Resume.MaxTime).Set("max-time")
	}
	j.fleet.Drain(why, j.config.Resume.DrainTimeout)
}

// byContext adds the end of ctx as the cause if ctx stopped the job.
func byContext(ctx context.Context, err error) error {
	if e := fault.As(err); e != nil && e.Kind == fault.Canceled && ctx.Err() != nil {
		return e.By(errors.Join(ctx.Err(), context.Cause(ctx)))
	}
	return err
}

// checkSpend stops a job that has reached its limits in earlier runs, before any kernel
// starts.
func (j *job) checkSpend() error {
	why := j.spending.exhausted()
	if _, next := j.committer.output.Appended(); why != nil {
		if total, known := j.source.Total(); !known || next < j.config.Input.Offset+total {
			return why
		}
	}
	return nil
}

// spendDrain is how long requests in flight may take at least when a limit is reached: their
// answers are paid for.
const spendDrain = 10 * time.Minute

// overspent drains the job: a worker may not send another request.
// blind: a limit of tokens cannot hold, because the kernel reports none.
func (j *job) overspent(blind bool) {
	why := j.spending.exhausted()
	if blind {
		why = fault.NoTokenCounts.New("the job has a limit of tokens, but the kernel's first answers report none").Set("max-tokens-total")
	}
	if why == nil {
		return // another worker has given a request back
	}
	j.fleet.Drain(why, max(j.config.Resume.DrainTimeout, spendDrain))
}
