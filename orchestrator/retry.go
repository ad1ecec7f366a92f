package orchestrator

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/retry"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Retry computes the failed records of a finished job again and puts the results in
// their place. Config.Output.Path names the job; Input is ignored, and Kernel and
// its Config default to those of the job. The output is replaced in one step when all
// results are ready. If Retry is interrupted before that, the next Retry resumes.
//
// Records that came in with an _error are not the job's failures and stay.
func Retry(ctx context.Context, config Config) (Report, error) {
	found, err := findJob(config.Output.Path, config.Resume.WorkDir)
	if err := cmp.Or(err, checkOpenFiles(1)); err != nil {
		return Report{}, err
	}
	f, err := folder.Lock(ctx, found.Path, config.Output.Path, (&emitter{to: config.Display.OnEvent}).notice)
	if err != nil {
		return Report{}, err
	}
	defer f.Close(true)
	r := &rerun{config: config, folder: f, job: retry.New(files.Absolute(f.Path))}
	report, err := r.run(ctx)
	return report, byContext(ctx, err)
}

// rerun is a retry in progress. What needs only the files is in package retry.
type rerun struct {
	config   Config
	folder   *folder.Folder
	job      retry.Job // at its current path: a copied or moved job is retried in place
	manifest *folder.Manifest
	report   Report // of the job
}

func (r *rerun) run(ctx context.Context) (Report, error) {
	if err := r.load(ctx); err != nil {
		return Report{}, err
	}
	count := int64(0)
	if r.report.Failed > 0 { // otherwise an empty file of failed records may have been removed
		var err error
		if count, err = r.job.Collect(); err != nil {
			return Report{}, err
		}
	}
	if count == 0 {
		(&emitter{to: r.config.Display.OnEvent}).emit(r.nothing())
		return r.report, nil
	}
	again, err := r.compute(ctx)
	if err != nil {
		return again, err
	}
	return r.merge(ctx, again)
}

// nothing says why there is nothing to retry.
func (r *rerun) nothing() Notice {
	if r.report.Failed > 0 {
		return Notice{Text: "nothing to retry: the failed records came with an _error; correct the input, retry the earlier job, or compute them here", Value: "reprocess"}
	}
	return Notice{Text: "nothing to retry: no record failed"}
}

// compute runs the failed records, unless an earlier retry did and was killed before
// the merge.
func (r *rerun) compute(ctx context.Context) (Report, error) {
	o, err := r.again()
	if err != nil {
		return Report{}, err
	}
	if o.beside, err = r.bytesOfFailed(ctx); err != nil {
		return Report{}, err
	}
	if report, done, err := r.reuse(ctx, &o); done || err != nil {
		return report, err
	}
	report, err := run(ctx, o)
	if fault.KindOf(err) == fault.Conflict && !o.Resume.Fresh { // what the earlier retry left is of no use
		o.Spec = o.With(afresh)
		return run(ctx, o)
	}
	return report, err
}

// afresh replaces what an earlier run has left.
func afresh(s *spec.Spec) { s.Resume.Fresh, s.Output.Force = true, true }

// load reads the finished job, after completing what an earlier retry started.
func (r *rerun) load(ctx context.Context) (err error) {
	if m, err := r.folder.Unfinished(); err != nil {
		return err
	} else if m != nil {
		return fault.JobUnfinished.New("the job of %s is not finished: run the same gpurun run command again first", r.config.Output.Path)
	}
	if r.manifest, err = r.folder.Manifest(); err != nil {
		return fault.FolderDamaged.Wrap(err)
	}
	was, job := r.manifest.Spec, &r.job
	job.Output, job.Errors = was.Results.Target.Renamed(r.config.Output.Path), was.Output.Errors
	job.Format, job.SourceField, job.Store, job.KeptApart = was.Results.Format, was.Output.SourceField, was.Results.Store, was.Results.KeepFailed
	switch {
	case job.KeptApart:
		job.Errors = r.folder.Join(commit.KeptFile)
	case was.Results.Errors.Kept():
		if job.Errors, err = r.moved(job.Errors); err != nil {
			return err
		}
	}
	job.Arrays = slices.Clone(was.Results.Arrays)
	for i, a := range job.Arrays {
		if job.Arrays[i].Path, err = r.moved(a.Path); err != nil {
			return err
		}
	}
	if retry.Committed(r.folder.Path) {
		if err := job.Check(ctx); err != nil {
			return err
		}
		if err := r.replace(ctx); err != nil {
			return err
		}
	}
	if r.report, err = ReadReport(r.folder.Report()); err != nil {
		return err
	}
	r.report.Output, r.report.Folder = r.config.Output.Path, r.folder.Path // as seen from here
	if was.Output.Errors != "" && !r.manifest.Writes(job.Output) {
		r.report.Errors = job.Errors
		if _, err := os.Stat(job.Errors); err != nil && r.report.Failed > 0 {
			return fault.JobMoved.New("the job of %s was copied or moved from %s without its failed records: copy or move %s to %s, then retry it",
				r.config.Output.Path, was.Output.Path, was.Output.Errors, job.Errors)
		}
	}
	if len(r.report.Arrays) != len(job.Arrays) {
		return fault.OutputChanged.New("the report of the job lists %d arrays instead of %d", len(r.report.Arrays), len(job.Arrays))
	}
	for i := range r.report.Arrays {
		a := &r.report.Arrays[i]
		a.Path = job.Arrays[i].Path
		job.ArraySums = append(job.ArraySums, chunk.FileSum{Bytes: a.Bytes, CRC: uint32(a.CRC32C)})
	}
	return r.unchanged(ctx)
}

// moved returns where a file of the job is now. If the job was copied or moved, the file must have
// moved with the output: the other one may belong to another job.
func (r *rerun) moved(path string) (string, error) {
	now, with := r.manifest.MovedWith(r.job.Output, path)
	if !with {
		return "", fault.JobMoved.New("the job of %s was copied or moved from %s, and its file %s is outside the output's folder and may belong to that one; retry it there",
			r.config.Output.Path, r.manifest.Spec.Output.Path, path)
	}
	return now, nil
}

// newLayout returns the layout of the new results: that of the job or, if no record of it
// succeeded, of the retry. known is false if none of that succeeded either.
func (r *rerun) newLayout(ctx context.Context) (layout *columns.Layout, known bool, err error) {
	stored := r.manifest.Spec.Results.Columns.Clone()
	if stored == nil || r.manifest.Layout != nil {
		return r.manifest.Layout, true, nil
	}
	m, err := folder.Of(r.job.Again).Manifest()
	if err != nil {
		return nil, false, fault.FolderDamaged.Wrap(err)
	}
	if m.Layout != nil {
		return m.Layout, true, nil
	}
	if stored.IsTable() {
		failed, err := source.Find(source.Options{Names: []string{r.job.Failed}, Format: "jsonl"})
		if err == nil {
			err = sampleTable(ctx, failed, format.Options{Threads: 1}, stored.Table, r.manifest.Spec.Output.Keep)
		}
		if err != nil {
			return nil, false, err
		}
	}
	fallback := stored.Fallback()
	return &fallback, false, nil
}

// unchanged refuses an output that has changed since the job wrote it: better now than
// after the failed records are computed. The input does not matter: failed records are
// kept in the output.
func (r *rerun) unchanged(ctx context.Context) error {
	if path := r.manifest.Spec.Output.Errors; path != "" && !r.manifest.Spec.Results.Errors.Kept() {
		return fault.NoFailedRecords.New("the failed records were not kept: they were written to %s", path)
	}
	if err := Verify(ctx, r.job.Output, r.report); err != nil {
		return err
	}
	if r.report.OutputCRC32C != nil {
		r.job.CRC = *r.report.OutputCRC32C
	}
	var err error
	if r.job.Manifest, err = spec.At(r.job.Output).Parts(); err != nil {
		return fault.OutputChanged.New("%s was changed since the job wrote it: %w", r.job.Output, err)
	}
	if r.job.Manifest != nil {
		r.job.Parts = r.job.Manifest.Parts
	}
	return nil
}

// merge builds the new files and their report, and replaces the old ones.
func (r *rerun) merge(ctx context.Context, again Report) (Report, error) {
	layout, _, err := r.newLayout(ctx)
	if err != nil {
		return r.report, err
	}
	r.job.Layout, r.job.NoValues = layout, layout != r.manifest.Layout
	merged, err := r.job.Merge()
	if err != nil {
		return r.report, err
	}
	report := r.report
	report.setArrays(r.job.Arrays, merged.ArraySums)
	report.Succeeded += again.Succeeded
	report.Dropped += again.Dropped
	report.Failed = 0
	done := chunk.Tally{Kinds: merged.Tally.Kinds, Causes: merged.Tally.Causes, Counts: chunk.Counts{
		Records: report.In, Succeeded: report.Succeeded, Dropped: report.Dropped, Failed: merged.Tally.Failed,
	}}
	parts := commit.NewManifest(merged.Parts, done.Counts, r.job.Format)
	report.Started, report.Workers, report.Start, report.Retried = again.Started, again.Workers, again.Start, again.In
	report.Sick = append(report.Sick, again.Sick...)
	report.close(time.Now(), done)
	report.Elapsed, report.Load, report.Rate, report.Nulls = again.Elapsed, again.Load, again.Rate, again.Nulls
	report.Computed = again.Computed
	report.AddUsage(again.Usage)
	report.TokenRate = again.TokenRate
	report.OutputBytes, report.OutputCRC32C, report.Unencoded = parts.Bytes, nil, 0
	for _, part := range merged.Parts {
		report.Unencoded += r.job.Format.Unencoded(part.Unencoded)
	}
	if r.job.Manifest == nil {
		report.OutputCRC32C = &parts.Parts[0].CRC32C
	}
	if err := r.job.Commit(ctx, report, parts, merged.ArraySums); err != nil {
		return report, err
	}
	return report, r.replace(ctx)
}

// replace puts the new files and their report in the place of the old ones.
func (r *rerun) replace(ctx context.Context) error {
	var report Report
	if err := r.job.Replace(&report); err != nil {
		return err
	}
	if err := report.Save(r.folder.Report()); err != nil {
		return err
	}
	layout, known, err := r.newLayout(ctx)
	if err != nil {
		return err
	}
	if known { // a record has succeeded, perhaps only now
		r.manifest.Layout = layout
		if err := r.folder.Save(*r.manifest); err != nil {
			return err
		}
	}
	return r.job.Clear()
}
