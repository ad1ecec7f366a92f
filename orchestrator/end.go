package orchestrator

import (
	"cmp"
	"context"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/fleet"
)

// conclude decides how the job has ended once the workers are done: err if something
// stopped it, nil if every record is in the output.
func (j *job) conclude(ctx context.Context, err error) error {
	if err == nil {
		err = j.unfinished(ctx)
	}
	if fault.KindOf(err) == fault.NoDevice && j.config.Failures.GiveUpMark {
		j.emit(Notice{Text: "no device is left: marking the remaining records as failed: " + err.Error(), Value: "give-up mark"})
		if err = j.fleet.MarkRest(ctx, fault.As(err), j.committer.commit); err == nil {
			err = j.unfinished(ctx)
		}
	}
	if err == nil || fault.KindOf(err) == fault.Storage { // a changed input may be the cause
		err = cmp.Or(j.source.CheckAll(), err)
	}
	if err == nil {
		err = j.outputChecked()
	}
	return err
}

// unfinished returns why records remain although no goroutine failed.
func (j *job) unfinished(ctx context.Context) error {
	_, next := j.committer.output.Appended()
	total, known := j.source.Total()
	all := known && next == j.config.Input.Offset+total // even if no slot has asked for more
	if why := j.fleet.Reason(); why != nil && (j.fleet.Unfinished() && !all || why.Kind == fault.Incompatible) {
		return why
	}
	if all {
		return nil
	}
	if !j.fleet.Unfinished() {
		if known {
			return fault.Bug.New("bug: the output has %d of %d records", next-j.config.Input.Offset, total)
		}
		return nil
	}
	if !j.fleet.Running() || ctx.Err() != nil {
		return fault.Interrupted.New("stopped on request")
	}
	return j.fleet.Exhausted()
}

// report returns the figures of the ended job.
func (j *job) report(done fleet.Report, answers int64) Report {
	c := j.config
	total, known := j.source.Total()
	r := Report{
		Input: c.Input.Path, Output: c.Output.Path, Errors: c.Output.Errors, Streamed: c.Results.Streamed(), Format: c.Format,
		Kernel: c.Kernel.Name, Started: j.started, Folder: j.folder.path, BatchSize: j.plan.BatchSize,
		GroupBy: j.plan.GroupBy, Concurrency: j.plan.Info.Concurrency, Unit: j.plan.Unit,
		Resumed: j.before.Records, ResumedAnswers: j.earlier.answers, Answers: answers,
		In: max(total, done.Tally.Records), Blank: j.source.Blank(), Uncounted: !known,
		Nulls: done.Nulls, Workers: done.Workers, Scaling: done.Scaling, Sick: done.Sick, Latency: Summarize(done.Latency),
	}
	if !done.Opened.IsZero() {
		r.Load = done.Opened.Sub(j.started)
	}
	if done.Padded > 0 {
		r.Padding = 1 - float64(done.Cost)/float64(done.Padded)
	}
	r.takeHealth(done.Health)
	if j.committer.unread { // the reader of the output has stopped reading
		done.Tally = done.Appended
	}
	r.close(time.Now(), done.Tally)
	return r
}

// finish completes the report, cleans up and emits Finished.
func (j *job) finish(err error) Report {
	answers := int64(0)
	if err != nil {
		answers = j.logged()
	}
	report := j.report(j.fleet.Close(answers), answers)
	report.Uncounted = report.Uncounted && err != nil
	report.SkippedInputs = j.skips.all()
	j.spending.note(&report)
	report.Stop = fault.As(fault.Bug.Wrap(err))
	if report.Resume = j.resumption(err); report.Resume == ResumesNever {
		report.Unresumable = j.config.Results.Unresumable()
	}
	if !j.committer.unread {
		report.noteOutput(j.committer.output.ResultSum(), j.committer.output.Unencoded(), j.config.Results.Format)
		if err == nil {
			report.noteArrays(j.config.Results.Arrays, j.committer.output.ArraySums())
		}
	}
	report.diagnose(j.config.cores(), j.interpreter != "", chosen{
		batchSize: j.config.Batching.Auto || j.config.Batching.Size > 0 || j.plan.Info.BatchSize > 0 || j.plan.GrowBatch,
		workers:   j.config.Devices.WorkersPerGPU == AutoWorkers || j.plan.Info.MaxWorkers == 1,
	})
	if runsAgain(err) && j.config.repaired == nil {
		return report
	}
	saved := report.writeDurably(j.folder.join(reportFile)) == nil
	clean := cleans(j.config, report)
	if err == nil && (saved || clean) { // otherwise the same command can still finish it
		j.folder.finish(clean)
	}
	if report.Resume == ResumesNever {
		j.folder.discard()
	}
	for _, stuck := range j.fleet.Stuck() {
		j.emit(Notice{Text: "gpurun exits without waiting for " + stuck.String()})
	}
	j.emit(Finished{Report: report})
	return report
}
