package orchestrator

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/orchestrator/fleet"
)

// job is a running job: what was prepared, and the parts that run it. Each part has its
// own lock.
type job struct {
	*prepared
	folder    *folder
	fleet     *fleet.Fleet // computes
	committer *committer   // the way into the output
	sources   *sources
	before    chunk.Tally // what earlier runs have done
	started   time.Time
	root      context.Context // ends with what the job is doing
	abort     context.CancelFunc
}

func newJob(p *prepared, f *folder, output *commit.Output, started time.Time) *job {
	j := &job{prepared: p, folder: f, started: started, sources: &sources{emitter: p.emitter, config: p.config, folder: f, programs: p.programs, data: p.data, columns: p.spec, layout: p.layout, job: p.job}}
	j.root, j.abort = context.WithCancel(context.Background())
	j.before.Add(p.earlier.state.Durable.Tally)
	for _, segment := range p.earlier.state.Segments {
		j.before.Add(segment.Tally)
	}
	j.committer = &committer{
		output: output, segments: make(chan chunk.Segment, 64), check: p.source.Check, giveUp: p.config.Results.Unread,
		disk: diskWarning{path: f.path, first: p.config.Input.Offset, emit: p.emit, done: p.config.Results.Streamed()},
	}
	j.fleet = fleet.New(j.fleetOptions())
	j.committer.appended, j.committer.total = j.fleet.SetAppended, j.fleet.Total
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
	for _, note := range j.earlier.notes {
		j.emit(Notice{Text: note})
	}
	if j.earlier.computedAny() || j.earlier.answers > 0 {
		j.emit(Resuming{Done: j.before.Records, Answers: j.earlier.answers, Job: j.before.Clone(), Ranges: finishedRanges(j.earlier.state), Total: j.fleet.Total()})
	}
}

// work runs the fleet and the committer.
func (j *job) work(ctx context.Context) error {
	defer j.abort()
	ctx, cancel := j.limitTime(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { j.stopBy(ctx) })()
	go j.obeyAbort(j.root)
	group, abortCtx := errgroup.WithContext(j.root)
	exited := make(chan struct{})
	group.Go(func() error {
		defer close(exited)
		return j.fleet.Run(abortCtx)
	})
	group.Go(j.committer.run)
	group.Go(func() error { return j.awaitOutputCheck(ctx, abortCtx) })
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
		j.earlier.check.cancel() // its result is no longer needed
	}
	close(j.committer.segments)
}
