package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/gpurun/gpurun/chunk"
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
		j.config.emit(Notice{Text: "no device is left: marking the remaining records as failed: " + err.Error(), Value: "give-up mark"})
		if err = j.fleet.MarkRest(ctx, fault.As(err), j.committer.commit); err == nil {
			err = j.unfinished(ctx)
		}
	}
	if err == nil || fault.KindOf(err) == fault.Storage { // a changed input may be the cause
		err = cmp.Or(j.source.CheckAll(), err)
	}
	if err == nil {
		err = j.earlier.Check.Passed()
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

// cleans reports whether the folder of a finished job can be removed. If records
// failed, it holds their details, and a retry needs it.
func (o *order) cleans(r Report) bool { return o.Resume.Clean && r.Failed == 0 }

// report returns the figures of the ended job.
func (j *job) report(done fleet.Report, answers int64) Report {
	total, known := j.source.Total()
	r := j.config.report(j.folder)
	r.Started, r.BatchSize, r.GroupBy, r.Concurrency, r.Unit = j.started, j.plan.BatchSize, j.plan.GroupBy, j.plan.Info.Concurrency, j.plan.Unit
	r.Resumed, r.ResumedAnswers, r.Answers = j.before.Records, j.earlier.Answers, answers
	r.In, r.Blank, r.Uncounted, r.Nulls = max(total, done.Tally.Records), j.source.Blank(), !known, done.Nulls
	r.Workers, r.Scaling, r.Sick, r.Latency = done.Workers, done.Scaling, done.Sick, Summarize(done.Latency)
	r.Start = startsOf(done.Workers)
	if !done.Opened.IsZero() {
		r.Load = done.Opened.Sub(j.started)
	}
	if done.Padded > 0 {
		r.Padding = 1 - float64(done.Cost)/float64(done.Padded)
	}
	for _, h := range done.Health {
		r.Devices = append(r.Devices, DeviceReport{Device: h.Device.String(), Name: h.Device.Name, Totals: h.Total, Xids: h.Xids, Problem: h.Problem})
	}
	if j.committer.unread { // the reader of the output has stopped reading
		done.Tally = *cmp.Or(j.committer.appended.Load(), new(chunk.Tally))
	}
	r.close(time.Now(), done.Tally)
	return r
}

// finish completes the report, cleans up and emits Finished.
func (j *job) finish(err error) Report {
	answers := int64(0)
	if err != nil {
		if state, unread := j.folder.State(); unread == nil {
			answers = j.folder.Answers(state)
		}
	}
	done := j.fleet.Close(answers)
	report := j.report(done, answers)
	report.Uncounted = report.Uncounted && err != nil
	report.SkippedInputs = j.skips.all()
	j.spending.complete(&report)
	report.Stop = fault.As(fault.Bug.Wrap(err))
	report.Resume, report.Unresumable = j.resumption(err)
	if !j.committer.unread {
		report.SetOutput(j.committer.output.ResultSum(), j.config.Results.Format.Unencoded(j.committer.output.Unencoded()))
		if err == nil {
			report.setArrays(j.config.Results.Arrays, j.committer.output.ArraySums())
		}
	}
	report.Bottleneck = report.bottleneck(j.config.cores(), j.kernel.Interpreter != "")
	report.advise(chosen{
		batchSize: j.config.Batching.Auto || j.config.Batching.Size > 0 || j.plan.Info.BatchSize > 0 || j.plan.GrowBatch,
		workers:   j.config.Devices.WorkersPerGPU == AutoWorkers || j.plan.Info.MaxWorkers == 1,
	})
	if runsAgain(err) && j.config.repaired == nil {
		return report
	}
	saved := report.Save(j.folder.Report()) == nil
	clean := j.config.cleans(report)
	if err == nil && (saved || clean) { // otherwise the same command can still finish it
		j.folder.Finish(clean)
	}
	if report.Resume == ResumesNever {
		j.folder.Discard()
	}
	for _, stuck := range done.Stuck {
		j.config.notice("gpurun exits without waiting for " + stuck.String())
	}
	j.config.emit(Finished{Report: report})
	return report
}

// Resumption is what running the same command does after a job has stopped.
type Resumption string

// What the same command does; messages promise nothing else.
const (
	// ResumesAtOnce: it resumes the job.
	ResumesAtOnce Resumption = "at-once"
	// ResumesWhenFixed: it resumes the job once the cause of the stop is fixed: a full
	// disk, a lost device.
	ResumesWhenFixed Resumption = "when-fixed"
	// ResumesAsAdvised: it is refused or stops in the same way; the stop message says
	// what to do.
	ResumesAsAdvised Resumption = "as-advised"
	// ResumesSameStream: it resumes the job if its input, a stream, delivers the same bytes
	// again, once the cause of the stop is fixed.
	ResumesSameStream Resumption = "same-stream"
	// ResumesNever: it starts over. The output is a stream, which cannot be written twice.
	ResumesNever Resumption = "never"
)

// errAdvised marks a fault whose message says what to do before the job can resume.
var errAdvised = errors.New("the message says how to resume")

// resumption returns what the same command does after err stopped the job, and why it can never
// resume.
func (j *job) resumption(err error) (_ Resumption, never string) {
	never = j.config.Results.Unresumable()
	usual, resumes := resumptions[fault.KindOf(err)]
	switch {
	case err == nil:
		return "", ""
	case never != "":
		return ResumesNever, never
	case errors.Is(err, errAdvised) || !resumes:
		return ResumesAsAdvised, ""
	case j.streamLost():
		return ResumesSameStream, ""
	}
	return usual, ""
}

// resumptions are what the same command usually does after a fault of some kinds.
var resumptions = map[fault.Kind]Resumption{
	fault.Canceled: ResumesAtOnce, fault.Stopped: ResumesAtOnce,
	fault.Storage: ResumesWhenFixed, fault.NoDevice: ResumesWhenFixed, fault.Device: ResumesWhenFixed, fault.Worker: ResumesWhenFixed,
}

// streamLost reports whether the input is a stream that must arrive again: the spool has not all
// of it.
func (j *job) streamLost() bool {
	_, whole := j.source.Total()
	return j.config.inputs.Streams() && !(j.config.Resume.Spool && whole)
}
