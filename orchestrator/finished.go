package orchestrator

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/retry"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// finished returns the report of a job in which nothing is left to compute. If it was killed when
// only the final renames were missing, those are made up for. Running a finished job again
// reports that it is complete. Any other job continues as the earlier run planned it.
func finished(ctx context.Context, o *order, f *folder.Folder, e *folder.Earlier) (report Report, done bool, err error) {
	notice := Notice{Text: "the job is already finished", Code: fault.JobFinished}
	if e.Resumes {
		o.Spec = o.With(func(s *spec.Spec) { // cuts the rest of the output as before
			was := e.Manifest.Spec
			s.Output.PartBytes, s.Results.PartBytes = was.Output.PartBytes, was.Results.PartBytes
		})
		if !e.State.Complete {
			return report, false, nil
		}
		notice = Notice{Text: "the job was already complete; only its files had not been renamed yet"}
		report, err = complete(o, f, e)
	} else if report, done = isFinished(ctx, o, f); !done {
		return report, false, nil
	}
	if err == nil {
		o.emit(notice)
		o.emit(Finished{Report: report})
	}
	return report, true, err
}

// complete gives the files of a job their names.
func complete(o *order, f *folder.Folder, e *folder.Earlier) (Report, error) {
	if err := spec.CheckChanges(e.Changes(o.Spec, o.inputs), o.Resume.AcceptChanges); err != nil {
		return Report{}, err
	}
	tally := e.State.Durable.Tally
	report := o.report(f)
	report.Started, report.In, report.Resumed, report.Blank = time.Now(), tally.Records, tally.Records, e.Manifest.Cut.Blank
	report.SetOutput(e.State.ResultSum(), o.Results.Format.Unencoded(e.State.Unencoded()))
	_, layout := o.Results.Stored(e.Manifest.Layout)
	options := o.Commit(f.Path, layout)
	options.Layout.Settle()
	report.setArrays(options.Arrays, e.State.ArraySums(options))
	err := commit.Complete(options, e.State)
	report.Stop = fault.As(err)
	report.close(time.Now(), tally)
	if err == nil {
		err = report.Save(f.Report())
	}
	if err == nil {
		f.Finish(o.cleans(report))
	}
	return report, err
}

// isFinished returns the report of this job if it is already finished and its output is
// unchanged. A stream may be another one.
func isFinished(ctx context.Context, o *order, f *folder.Folder) (Report, bool) {
	if o.Resume.Fresh || o.Output.Force || o.inputs.Streams() || retry.Committed(f.Path) { // a retry is half merged, or its state is unknown
		return Report{}, false
	}
	m, err := f.Manifest()
	if err != nil || len(m.Changes(o.Spec, o.inputs)) > 0 {
		return Report{}, false
	}
	report, err := ReadReport(f.Report())
	if err != nil || report.Stop != nil || !outputUnchanged(ctx, f, o.Results.Target, report) {
		return Report{}, false
	}
	if path := m.Spec.Output.Errors; path != "" && spec.At(path).Bytes() < 0 {
		return Report{}, false
	}
	report.Resumed = report.In
	freshen(f, o, m)
	return report, true
}

// withDifference adds to the error about an output that exists why the job is not the one
// that has finished here.
func withDifference(ctx context.Context, f *folder.Folder, o *order, err error) error {
	e := fault.As(err)
	if e == nil || e.Code != fault.OutputExists {
		return err
	}
	if missing := o.inputs.Check(); missing != nil {
		return missing
	}
	m, unread := f.Manifest()
	if unread != nil {
		return err // another program has written it
	}
	if list := m.Changes(o.Spec, o.inputs); len(list) > 0 {
		var texts []string
		if len(m.Input.Files) > 1 && list[0].What == "input" {
			e = e.WithCode(fault.OutputOfOtherFiles)
		}
		if report, err := ReadReport(f.Report()); err == nil && report.Failed > 0 && list[0].What == "kernel" {
			e = e.WithCode(fault.OutputWithFailures)
		}
		for _, change := range list {
			texts = append(texts, change.Text)
		}
		return fault.New(e.Kind, "%w, and the job has changed since it wrote that file: %s", e, strings.Join(texts, "; "))
	}
	if report, err := ReadReport(f.Report()); err == nil && report.Stop == nil && !outputUnchanged(ctx, f, o.Results.Target, report) {
		return fault.New(e.Kind, "%w, and is no longer what the job wrote", e)
	}
	return err
}

// Verify reads the output of a finished job and compares it with the checksums recorded
// when it was written. A difference is a fault of kind Conflict that says what differs.
func Verify(ctx context.Context, output string, report Report) error {
	if _, err := os.Stat(output); err != nil {
		return fault.OutputMissing.New("the job's output is missing: %w", err)
	}
	err := spec.At(output).Compare(ctx, report.OutputBytes, report.OutputCRC32C)
	for i := 0; err == nil && i < len(report.Arrays); i++ {
		a := report.Arrays[i]
		output, err = a.Path, spec.At(a.Path).Compare(ctx, a.Bytes, &a.CRC32C)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return byContext(ctx, fault.ReaderEnded.New("stopped while the output was read"))
	}
	return fault.OutputChanged.New("%s was changed since the job wrote it: %w", output, err)
}

// outputUnchanged reports whether the output of a finished job is unchanged. It is read only if
// it was modified after the report was written: reading takes long, and every
// repetition of the command asks this.
func outputUnchanged(ctx context.Context, f *folder.Folder, output spec.Target, report Report) bool {
	if output.Bytes() != report.OutputBytes {
		return false
	}
	last := output.Modified()
	for _, a := range report.Arrays {
		array := spec.At(a.Path)
		if array.Bytes() != a.Bytes {
			return false
		}
		if at := array.Modified(); at.After(last) {
			last = at
		}
	}
	info, err := os.Stat(f.Report())
	return err == nil && (last.Before(info.ModTime()) || Verify(ctx, output.Name, report) == nil)
}

// freshen gives the output of a finished job the current time if a file that it depends on is newer:
// make and others run the command again until the output is the newest.
func freshen(f *folder.Folder, o *order, m *folder.Manifest) {
	paths := slices.Clone(o.Inputs)
	for _, file := range slices.Concat(m.Kernel.Files, m.Kernel.Modules) {
		paths = append(paths, file.Path)
	}
	output, err := os.Stat(o.Output.Path)
	if err != nil || !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.ModTime().After(output.ModTime())
	}) {
		return
	}
	now := time.Now()
	_ = os.Chtimes(o.Output.Path, now, now)
	_ = os.Chtimes(f.Report(), now, now.Add(time.Millisecond)) // the output is as it was: see outputUnchanged
}

// setArrays records what the arrays must contain.
func (r *Report) setArrays(arrays []commit.Array, sums []chunk.FileSum) {
	r.Arrays = nil
	for i, a := range arrays {
		r.Arrays = append(r.Arrays, ArrayReport{Path: files.Absolute(a.Path), Bytes: sums[i].Bytes, CRC32C: chunk.CRC(sums[i].CRC)})
	}
}

// SetOutput records what the output must contain, and its size before encoding.
func (r *Report) SetOutput(sum chunk.FileSum, unencoded int64) {
	crc := chunk.CRC(sum.CRC)
	r.OutputBytes, r.OutputCRC32C, r.Unencoded = sum.Bytes, &crc, unencoded
}
