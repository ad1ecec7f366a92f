package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Run runs a job, or resumes it if an earlier run of the same job was interrupted. It
// returns when every record is in the output or when the job must stop. The error then
// says why, as a *Fault that errors.As finds, and the report says how far the job came.
// Failed records are not an error: Report.Failed counts them.
//
// Canceling ctx stops the job at each worker's next batch boundary. errors.Is then
// finds ctx.Err() and context.Cause(ctx) in the error.
func Run(ctx context.Context, config Config) (Report, error) {
	report, err := runJob(ctx, config)
	if errors.Is(err, errOutputDamaged) && ctx.Err() == nil {
		config.checkAll = true
		report, err = runJob(ctx, config)
	}
	return report, byContext(ctx, err)
}

func runJob(ctx context.Context, config Config) (Report, error) {
	if config.Output == "" {
		return Report{}, fault.New(fault.Usage, "no output: name a file with -o, or - for standard output")
	}
	started := time.Now()
	config, err := config.withDefaults()
	if err != nil {
		return Report{}, err
	}
	if err := checkOpenFiles(1); err != nil {
		return Report{}, err
	}
	if err := checkOutputFolders(config); err != nil {
		return Report{}, err
	}
	f, err := openFolder(ctx, config)
	if err != nil {
		return Report{}, err
	}
	begun := false
	defer func() { f.close(begun) }()
	before, err := findEarlier(ctx, config, f)
	if err != nil {
		return Report{}, err
	}
	if before != nil {
		begun = true
		if bytes := before.manifest.Cut.PartBytes; bytes > 0 {
			config.PartBytes = bytes // cut the rest of the output as before
		}
		if before.state.Complete {
			return finishEarlier(config, f, before)
		}
		defer before.close()
	} else if report, done := findFinished(ctx, config, f); done {
		begun = true
		return report, nil
	}
	if err := checkOutputs(config); err != nil {
		return Report{}, err
	}
	p, err := prepare(ctx, config, before, false, f.lock.note)
	if err != nil {
		return Report{}, err
	}
	defer p.close()
	if before == nil {
		if err := f.begin(); err != nil {
			return Report{}, err
		}
		begun = resumable(config)
	}
	if p.source == nil {
		if err := p.openStream(f.join("spool")); err != nil {
			return Report{}, err
		}
	}
	if err := p.openSums(f); err != nil {
		return Report{}, err
	}
	output, journal, err := openOutput(ctx, p, f)
	if err != nil {
		return Report{}, err
	}
	if journal != nil {
		defer journal.Close()
	}
	begun = true
	return newJob(p, f, output, started).run(ctx)
}

// job is a running job.
type job struct {
	*prepared
	folder   *folder
	output   *commit.Output
	queue    *queue
	segments chan chunk.Segment
	ledger   *ledger
	stagger  *stagger // nil: all kernels open at once

	stopping       atomic.Bool
	answered       atomic.Bool // a batch has finished, successfully or not
	stallReported  atomic.Bool // that no batch finished for a long time
	searchReported atomic.Bool // that a whole batch failed
	emitting       sync.Mutex
	finished       bool // Finished was emitted; guarded by emitting
	diskChecked    bool // used by the committer only
	unread         bool // the committer was abandoned in a write, and the output with it
	abort          context.CancelFunc
	monitor        *gpu.Monitor                 // nil: nothing is monitored
	samples        samples                      // used by the monitor only
	frameworks     map[int]wire.FrameworkMemory // by slot, as kernels report
	sampled        bool                         // devices were sampled once; used by the monitor only

	mu       sync.Mutex
	slots    []slotState
	retired  map[string]*fault.Error // devices, by name
	opened   bool                    // some worker's kernel has been ready
	last     *fault.Error            // why the last worker was lost
	unusable *fault.Error            // why the last worker that did not lose its device was lost
	stopped  *fault.Error            // the limit or breaker that stopped the job

	stuck stuckList

	warnings warnings

	sourcing sync.Mutex // guards print.Kernel, which grows as kernels load files

	paceChanged chan struct{} // closed and replaced when a slot's pace changes
}

// slotState is what the job knows about a slot; the slot's own goroutine changes it.
type slotState struct {
	worker   *workerProcess
	size     int64          // of its current chunk
	done     int64          // records of that chunk
	since    time.Time      // when it was assigned
	endAsked bool           // it was asked to end the chunk
	ending   bool           // it has handed back the rest of the chunk
	scarce   *workerProcess // the worker that was notified that the job is nearing its end
	retired  bool
	freed    bool    // it has no slot in the registry
	pace     float64 // the share of time in which it may compute
	report   WorkerReport
}

func newJob(p *prepared, f *folder, output *commit.Output, started time.Time) *job {
	j := &job{
		prepared: p, folder: f, output: output, queue: newQueue(p.source),
		segments: make(chan chunk.Segment, 64), ledger: newLedger(p, f.path, started),
		slots:   make([]slotState, len(p.plan.Slots)),
		retired: make(map[string]*fault.Error),

		paceChanged: make(chan struct{}),
	}
	for i, slot := range p.plan.Slots {
		j.slots[i].pace = 1
		j.slots[i].report = WorkerReport{Slot: slot.Number, Device: slot.Name}
	}
	if p.config.Stagger {
		j.stagger = newStagger()
	}
	return j
}

func (j *job) run(ctx context.Context) (Report, error) {
	j.config.Control.attach(j)
	defer j.config.Control.detach()
	if !j.config.checkAll { // otherwise it was already emitted
		j.emit(Planned{Plan: j.plan})
	}
	for _, note := range j.plan.Notes {
		j.emit(Notice{Text: note})
	}
	if j.earlier != nil {
		for _, note := range j.earlier.notes {
			j.emit(Notice{Text: note})
		}
		if j.earlier.computedAny() {
			j.emit(Resuming{Done: j.ledger.before.Records, Job: j.ledger.before, Total: j.ledger.total()})
		}
	}
	err := j.work(ctx)
	if err == nil {
		err = j.unfinished(ctx)
	}
	if fault.KindOf(err) == fault.NoDevice && j.config.GiveUpMark {
		j.emit(Notice{Text: "no device is left: marking the remaining records as failed (--give-up mark): " + err.Error()})
		if err = j.markRest(ctx, fault.As(err)); err == nil {
			err = j.unfinished(ctx)
		}
	}
	if err == nil || fault.KindOf(err) == fault.Storage { // a changed input may be the cause
		err = cmp.Or(j.checkInput(0, math.MaxInt64), err)
	}
	if err == nil {
		err = j.outputChecked()
	}
	switch {
	case err == nil:
		err = j.output.Finish()
	case !j.unread:
		crash.Point("stopping")
		j.output.Abandon()
	}
	return j.finish(err), err
}

// work runs the slots and the committer. The group's context ends only for what must
// stop the whole job. A failed record, worker or device is a value, never an error of a
// group's goroutine, or it would cancel its healthy siblings.
func (j *job) work(ctx context.Context) error {
	rootCtx, abort := context.WithCancel(context.Background())
	defer abort()
	j.abort = abort
	if j.config.MaxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, j.config.MaxTime, errMaxTime)
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() { j.stopBy(ctx) })()
	if j.config.Abort != nil {
		go func() {
			select {
			case <-j.config.Abort:
				j.stopping.Store(true)
				abort()
			case <-rootCtx.Done():
			}
		}()
	}
	stopMonitor, err := j.startMonitor(rootCtx)
	if err != nil {
		return err
	}
	defer func() { abort(); stopMonitor() }()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		j.watchDevices(rootCtx)
	}()
	defer func() { abort(); <-watching }()
	group, abortCtx := errgroup.WithContext(rootCtx)
	defer context.AfterFunc(abortCtx, j.queue.close)()
	var slots, workers sync.WaitGroup
	for _, slot := range j.plan.Slots {
		j.queue.join(slot.key())
	}
	for _, slot := range j.plan.Slots {
		slots.Add(1)
		workers.Add(1)
		group.Go(func() error {
			defer workers.Done()
			run := newSlotRun(j, slot)
			defer run.release(abortCtx)
			defer slots.Done()
			return run.run(abortCtx)
		})
	}
	group.Go(j.commitAll)
	if j.earlier != nil && j.earlier.check != nil {
		group.Go(func() error { return j.awaitOutputCheck(ctx, abortCtx) })
	}
	if len(j.plan.Slots) == 0 { // an input without records: no slot reads it to its end
		group.Go(func() error { _, _, err := j.queue.take(abortCtx, "", 0); return err })
	}
	balancing := make(chan struct{})
	go j.balance(balancing)
	slots.Wait()
	if j.earlier != nil && j.earlier.check != nil && (j.stopping.Load() || j.queue.unfinished()) {
		j.earlier.check.cancel() // its result is no longer needed
	}
	j.releaseHeld(abortCtx, true)
	close(balancing)
	close(j.segments)
	committed := make(chan error, 1)
	go func() { committed <- group.Wait() }()
	select {
	case err := <-committed:
		return err
	case <-j.config.Abort:
		workers.Wait()
		return j.lastCommit(committed)
	}
}

// unfinished returns why records remain although no goroutine failed.
func (j *job) unfinished(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, next := j.output.Appended()
	total, known := j.source.Total()
	all := known && next == j.config.Offset+total // even if no slot has asked for more
	if j.stopped != nil && (j.queue.unfinished() && !all || j.stopped.Kind == fault.Incompatible) {
		return j.stopped
	}
	if all {
		return nil
	}
	if !j.queue.unfinished() {
		if known {
			return fault.New(fault.Unknown, "bug: the output has %d of %d records", next-j.config.Offset, total)
		}
		return nil
	}
	switch {
	case j.stopping.Load() || ctx.Err() != nil:
		return fault.New(fault.Canceled, "stopped on request")
	case j.last == nil:
		return fault.New(fault.NoDevice, "no device is left")
	case !j.opened && j.unusable != nil:
		return fault.New(fault.Incompatible, "the kernel could not be opened on any device: %s", j.unusable.Message).WithDetail(j.unusable.Detail)
	}
	return fault.New(fault.NoDevice, "no device is left; the last one failed with: %s", j.last.Message).WithDetail(j.last.Detail)
}

// markRest keeps all records that no device is left to compute, marked as failed.
func (j *job) markRest(ctx context.Context, e *fault.Error) error {
	why := fault.New(fault.Device, "not computed: %s", e.Message).WithDetail(e.Detail)
	return j.queue.rest(ctx, func(t task) error {
		segment, err := j.giveUp(t, why)
		if err != nil {
			return err
		}
		j.ledger.commit(segment.Tally)
		j.source.Release(t.chunk)
		return j.commitSegment(segment)
	})
}

// giveUp writes a chunk with every record marked as failed.
func (j *job) giveUp(t task, why *fault.Error) (chunk.Segment, error) {
	segment, err := commit.GiveUp(t.chunk, commit.PartOptions{
		Path:        j.partPath(t),
		ErrorsApart: j.config.Errors != "", Framed: j.config.framed, Step: j.config.Kernel,
	}, j.config.MaxRecordBytes, why)
	if err != nil {
		return segment, err
	}
	j.emit(ChunkGivenUp{First: t.chunk.First, Records: t.chunk.Records, Fault: why})
	return segment, nil
}

// finish completes the report, cleans up and emits Finished.
func (j *job) finish(err error) Report {
	report := j.ledger.close(j.workerReports(), j.unread)
	report.Uncounted = report.Uncounted && err != nil
	report.Stop = fault.As(fault.Wrap(fault.Unknown, err))
	if report.Resume = resumption(j.config, err); report.Resume == ResumesNever {
		report.Unresumable = unresumable(j.config)
	}
	if !j.unread {
		report.noteOutput(j.output.ResultSum())
	}
	if j.monitor != nil {
		report.takeHealth(j.monitor.Status())
	}
	if errors.Is(err, errOutputDamaged) {
		return report // the job runs again
	}
	saved := report.writeDurably(j.folder.join(reportFile)) == nil
	if err == nil && j.config.Input == "-" && !isStream(j.config.Output) {
		// The job cannot be resumed, only retried: job.json without a journal describes
		// a finished job.
		if err := j.folder.save(j.prepared.manifest(report.Started.UTC())); err != nil {
			j.emit(Notice{Text: "gpurun retry will not find this job: " + err.Error()})
		}
	}
	clean := cleans(j.config, report)
	if err == nil && (saved || clean || !resumable(j.config)) { // otherwise the same command can still finish it
		j.folder.finish(clean)
	}
	if report.Resume == ResumesNever {
		j.folder.discard(j.config.Output)
	}
	j.noteStuck()
	j.emit(Finished{Report: report})
	return report
}

// emit passes an event to the embedding program, one at a time.
func (j *job) emit(event Event) {
	if j.config.OnEvent == nil {
		return
	}
	j.emitting.Lock()
	defer j.emitting.Unlock()
	if j.finished { // Finished is the last event
		return
	}
	_, j.finished = event.(Finished)
	j.config.OnEvent(event)
}

// partPath returns a path for a part that contains its first record's number and is
// unique, so that no two attempts, including those of earlier runs, write to the same
// file.
func (j *job) partPath(t task) string {
	return j.folder.join(commit.PartsDir, fmt.Sprintf("%012d-%s", t.chunk.First, randomName()[:8]))
}
