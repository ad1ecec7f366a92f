package orchestrator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Run does a job. It returns when every record is in the output, or when the job
// must stop; the error then says why, as a fault that errors.As finds, and the
// report how far it came. Records that failed are no error: Report.Failed counts
// them.
//
// The end of ctx stops the job at the next batch border of each worker.
func Run(ctx context.Context, config Config) (Report, error) {
	if config.Output == "" {
		return Report{}, fault.New(fault.Usage, "no output: name a file with -o, or - for standard output")
	}
	started := time.Now()
	p, err := prepare(ctx, config)
	if err != nil {
		return Report{}, err
	}
	defer p.close()
	f, err := openFolder(p.config.Output)
	if err != nil {
		return Report{}, err
	}
	defer f.close()
	if p.source == nil {
		if err := p.openStream(f.join("spool")); err != nil {
			return Report{}, err
		}
	}
	output, err := chunk.CreateOutput(chunk.OutputOptions{
		Path: p.config.Output, Errors: p.config.Errors, WorkDir: f.path,
		First: p.config.Offset, Stdout: p.config.Stdout,
	})
	if err != nil {
		return Report{}, err
	}
	return newJob(p, f, output, started).run(ctx)
}

// job is a running job.
type job struct {
	*prepared
	folder   *folder
	output   *chunk.Output
	queue    *queue
	segments chan chunk.Segment

	stopping atomic.Bool
	emitting sync.Mutex

	mu      sync.Mutex
	report  Report
	live    []chunk.Counts // of the chunk that each slot is at
	workers []*workerProcess
	retired map[string]*fault.Error // devices, by name
	opened  bool                    // some worker's kernel was once ready
	last    *fault.Error            // how the last worker was lost
}

func newJob(p *prepared, f *folder, output *chunk.Output, started time.Time) *job {
	j := &job{
		prepared: p, folder: f, output: output, queue: newQueue(p.source),
		segments: make(chan chunk.Segment, 64),
		live:     make([]chunk.Counts, len(p.plan.Slots)),
		workers:  make([]*workerProcess, len(p.plan.Slots)),
		retired:  make(map[string]*fault.Error),
	}
	j.report = Report{
		Input: p.config.Input, Output: p.config.Output, Errors: p.config.Errors,
		Kernel: p.config.Kernel, Started: started, Folder: f.path, BatchSize: p.plan.BatchSize,
	}
	for _, slot := range p.plan.Slots {
		j.report.Workers = append(j.report.Workers, WorkerReport{Slot: slot.Number, Device: slot.Name})
	}
	return j
}

func (j *job) run(ctx context.Context) (Report, error) {
	j.emit(Planned{Plan: j.plan})
	for _, note := range j.plan.Notes {
		j.emit(Notice{Text: note})
	}
	err := j.work(ctx)
	if err == nil {
		err = j.unfinished(ctx)
	}
	if err == nil {
		err = j.output.Finish()
	} else {
		j.output.Abandon()
	}
	if err == nil {
		j.folder.finish()
	}
	return j.finish(err), err
}

// work runs the slots and the committer. The group's context carries only what
// must stop the whole job: a failed record, worker or device is a value, never
// an error of a group's goroutine, or it would cancel its healthy siblings.
func (j *job) work(ctx context.Context) error {
	whole, abort := context.WithCancel(context.Background())
	defer abort()
	defer context.AfterFunc(ctx, j.stop)()
	if j.config.Abort != nil {
		go func() {
			select {
			case <-j.config.Abort:
				j.stopping.Store(true)
				abort()
			case <-whole.Done():
			}
		}()
	}
	group, now := errgroup.WithContext(whole)
	defer context.AfterFunc(now, j.queue.close)()
	var slots sync.WaitGroup
	for _, slot := range j.plan.Slots {
		slots.Add(1)
		group.Go(func() error {
			defer slots.Done()
			return newSlotRun(j, slot).run(now)
		})
	}
	group.Go(func() error {
		for segment := range j.segments {
			if err := j.output.Commit(segment); err != nil {
				return err
			}
		}
		return nil
	})
	if len(j.plan.Slots) == 0 { // an input without records: nobody else asks for its end
		group.Go(func() error { _, _, err := j.queue.take(now); return err })
	}
	slots.Wait()
	close(j.segments)
	return group.Wait()
}

// stop asks every worker to end at its next batch border.
func (j *job) stop() {
	if j.stopping.Swap(true) {
		return
	}
	j.emit(Stopping{})
	j.queue.close()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.workers {
		if w != nil {
			_ = w.conn.Send(wire.Message{Stop: &wire.Stop{}})
		}
	}
}

// unfinished is why records are left although no goroutine failed.
func (j *job) unfinished(ctx context.Context) error {
	if !j.queue.unfinished() {
		_, next := j.output.Appended()
		if total, known := j.source.Total(); known && next != j.config.Offset+total {
			return fault.New(fault.Unknown, "bug: %d of %d records came out", next-j.config.Offset, total)
		}
		return nil
	}
	if j.stopping.Load() || ctx.Err() != nil {
		return fault.New(fault.Canceled, "stopped on request")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil {
		return fault.New(fault.NoDevice, "no device is left")
	}
	if !j.opened {
		return fault.New(fault.Incompatible, "the kernel could not be opened on any device: %s", j.last.Message).WithDetail(j.last.Detail)
	}
	return fault.New(fault.NoDevice, "no device is left; the last was lost by: %s", j.last.Message).WithDetail(j.last.Detail)
}

// finish closes the report and tells everybody.
func (j *job) finish(err error) Report {
	j.mu.Lock()
	total, _ := j.source.Total()
	j.report.In, j.report.Blank = total, j.source.Blank()
	j.report.Stop = fault.As(fault.Wrap(fault.Unknown, err))
	j.report.close(time.Now())
	report := j.report
	j.mu.Unlock()
	_ = report.WriteFile(j.folder.join("report.json"))
	j.emit(Finished{Report: report})
	return report
}

// emit tells the program that embeds the job, one event at a time.
func (j *job) emit(event Event) {
	if j.config.OnEvent == nil {
		return
	}
	j.emitting.Lock()
	defer j.emitting.Unlock()
	j.config.OnEvent(event)
}

// done is what is done of the whole job, chunks in work included; the caller
// holds j.mu.
func (j *job) done() chunk.Counts {
	counts := chunk.Counts{Succeeded: j.report.Succeeded, Failed: j.report.Failed, Dropped: j.report.Dropped}
	counts.Records = counts.Succeeded + counts.Failed + counts.Dropped
	for _, live := range j.live {
		counts.Add(live)
	}
	return counts
}

// total is the number of records, -1 while it is not known.
func (j *job) total() int64 {
	if total, known := j.source.Total(); known {
		return total
	}
	return -1
}

// partPath names a part by its first record and attempt.
func (j *job) partPath(t task) string {
	return j.folder.join("parts", fmt.Sprintf("%012d-%d", t.chunk.First, t.attempts))
}
