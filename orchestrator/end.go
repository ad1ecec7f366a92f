package orchestrator

import (
	"cmp"
	"context"

	"github.com/gpurun/gpurun/internal/fault"
)

// conclude decides how the job has ended once the workers are done: err if something
// stopped it, nil if every record is in the output.
func (j *job) conclude(ctx context.Context, err error) error {
	if err == nil {
		err = j.unfinished(ctx)
	}
	if fault.KindOf(err) == fault.NoDevice && j.config.Failures.GiveUpMark {
		j.emit(Notice{Text: "no device is left: marking the remaining records as failed: " + err.Error(), Code: CodeSetting, Value: "give-up mark"})
		if err = j.markRest(ctx, fault.As(err)); err == nil {
			err = j.unfinished(ctx)
		}
	}
	if err == nil || fault.KindOf(err) == fault.Storage { // a changed input may be the cause
		err = cmp.Or(j.committer.checkInput(), err)
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
	if why := j.state.reason(); why != nil && (j.queue.unfinished() && !all || why.Kind == fault.Incompatible) {
		return why
	}
	if all {
		return nil
	}
	if !j.queue.unfinished() {
		if known {
			return fault.New(fault.Unknown, "bug: the output has %d of %d records", next-j.config.Input.Offset, total)
		}
		return nil
	}
	if !j.state.running() || ctx.Err() != nil {
		return fault.New(fault.Canceled, "stopped on request")
	}
	return j.fleet.exhausted()
}

// markRest keeps all records that no device is left to compute, marked as failed.
func (j *job) markRest(ctx context.Context, e *fault.Error) error {
	why := fault.New(fault.Device, "not computed: %s", e.Message).WithDetail(e.Detail)
	for _, s := range j.suspects.takeAll() { // no device is left to compute them again
		j.ledger.commit(s.done.Segment.Tally)
		j.source.Release(s.task.chunk)
		if err := j.committer.commit(s.done.Segment); err != nil {
			return err
		}
		j.queue.finish()
	}
	return j.queue.rest(ctx, func(t task) error {
		segment, err := j.giveUp(ctx, t, why)
		if err != nil {
			return err
		}
		j.ledger.commit(segment.Tally)
		j.source.Release(t.chunk)
		return j.committer.commit(segment)
	})
}

// finish completes the report, cleans up and emits Finished.
func (j *job) finish(err error) Report {
	answers := int64(0)
	if err != nil {
		answers = j.logged()
	}
	report := j.ledger.close(j.fleet.reports(), j.fleet.loaded(j.ledger.report.Started), j.committer.unread, answers)
	report.Uncounted = report.Uncounted && err != nil
	report.Scaling = j.scaler.report()
	report.SkippedInputs = j.skips.all()
	j.noteUsage(&report)
	report.Stop = fault.As(fault.Wrap(fault.Unknown, err))
	if report.Resume = j.resumption(err); report.Resume == ResumesNever {
		report.Unresumable = unresumable(j.config)
	}
	if !j.committer.unread {
		report.noteOutput(j.committer.output.ResultSum(), j.committer.output.Unencoded(), j.config.format())
		if err == nil && !j.config.framed {
			report.noteArrays(j.config.Output.arrays(), j.committer.output.ArraySums())
		}
	}
	if monitor := j.monitor.monitor; monitor != nil {
		report.takeHealth(monitor.Status())
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
	if err == nil && (saved || clean || !resumable(j.config)) { // otherwise the same command can still finish it
		j.folder.finish(clean)
	}
	if report.Resume == ResumesNever {
		j.folder.discard(j.config.Output.Path)
	}
	j.noteStuck()
	j.emit(Finished{Report: report})
	return report
}
