package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/amend"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// retryDir, in the job folder, is where the failed records are computed again.
// retryMarker means that the new files are complete and only need to be renamed.
const (
	retryDir    = "retry"
	retryMarker = "retry.json"
)

// Retry computes the failed records of a finished job again and puts the results in
// their place. Config.Output names the job; Input is ignored, and Kernel and
// KernelConfig default to those of the job. The output is replaced in one step when all
// results are ready. If Retry is interrupted before that, the next Retry resumes.
//
// Records that came in with an _error are not the job's failures and stay.
func Retry(ctx context.Context, config Config) (Report, error) {
	if config.Output == "" || isStream(config.Output) {
		return Report{}, fault.New(fault.Usage, "name the output of a finished job")
	}
	if err := checkOpenFiles(1); err != nil {
		return Report{}, err
	}
	path, err := folderPath(config)
	if err != nil {
		return Report{}, err
	}
	if _, err := os.Stat(filepath.Join(path, manifestFile)); err != nil {
		return Report{}, noJob(config.Output, path)
	}
	f, err := openFolder(ctx, config)
	if err != nil {
		return Report{}, err
	}
	defer f.close(true)
	r := &retry{config: config, folder: f, output: absolute(config.Output)}
	report, err := r.run(ctx)
	return report, byContext(ctx, err)
}

type retry struct {
	config   Config
	folder   *folder
	output   string // its current path: a copied or moved job is retried in place
	manifest *manifest
	report   Report           // of the job
	parts    *commit.Manifest // of its output, if that is a folder
}

// retried is the content of retryMarker: the state after the files are renamed.
type retried struct {
	Report Report           `json:"report"`
	Parts  *commit.Manifest `json:"parts,omitempty"`
}

func (r *retry) run(ctx context.Context) (Report, error) {
	if err := r.load(ctx); err != nil {
		return Report{}, err
	}
	count, err := r.collect()
	if err != nil {
		return Report{}, err
	}
	if count == 0 {
		r.emit(Notice{Text: "nothing to retry: no record failed"})
		return r.report, nil
	}
	again, err := r.compute(ctx)
	if err != nil {
		return again, err
	}
	return r.merge(again)
}

// compute runs the failed records, unless an earlier retry did and was killed before
// the merge.
func (r *retry) compute(ctx context.Context) (Report, error) {
	config, err := r.again()
	if err != nil {
		return Report{}, err
	}
	if report, done := r.reuse(ctx, &config); done {
		return report, nil
	}
	report, err := Run(ctx, config)
	if fault.KindOf(err) == fault.Conflict && !config.Fresh { // what the earlier retry left is of no use
		config.Fresh, config.Force = true, true
		return Run(ctx, config)
	}
	return report, err
}

// load reads the finished job, after completing what an earlier retry started.
func (r *retry) load(ctx context.Context) (err error) {
	if m, err := r.folder.unfinished(); err != nil {
		return err
	} else if m != nil {
		return fault.New(fault.Conflict, "the job of %s is not finished: run the same gpurun run command again first", r.config.Output)
	}
	if r.manifest, err = readManifest(r.folder.join(manifestFile)); err != nil {
		return fault.Wrap(fault.Conflict, err)
	}
	if keepsParts(r.manifest.Output) {
		r.output += "/"
	}
	if r.manifest.Errors != "" && !r.manifest.writes(r.output) {
		return fault.New(fault.Conflict, "the job of %s was copied or moved from %s, and its failed records are in %s, which may belong to that one; retry it there",
			r.config.Output, r.manifest.Output, r.manifest.Errors)
	}
	if _, err := os.Stat(r.folder.join(retryMarker)); !errors.Is(err, os.ErrNotExist) {
		if err := r.renameFiles(); err != nil {
			return err
		}
	}
	if r.report, err = readReport(r.folder.join(reportFile)); err != nil {
		return err
	}
	r.report.Output, r.report.Folder = r.config.Output, r.folder.path // as seen from here
	return r.unchanged(ctx)
}

// unchanged refuses an output that has changed since the job wrote it: better now than
// after the failed records are computed. The input does not matter: failed records are
// kept in the output.
func (r *retry) unchanged(ctx context.Context) error {
	if r.manifest.Errors != "" && isStream(r.manifest.Errors) {
		return fault.New(fault.Usage, "the failed records were not kept: they were written to %s", r.manifest.Errors)
	}
	if err := Verify(ctx, r.output, r.report); err != nil || !keepsParts(r.output) {
		return err
	}
	m, err := commit.ReadManifest(r.output)
	if err == nil {
		err = commit.Replaceable(r.output)
	}
	if err != nil {
		return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", r.output, err)
	}
	r.parts = &m
	return nil
}

// collect writes the failed records to their own file, unless an earlier retry did, and
// returns how many there are.
func (r *retry) collect() (count int64, err error) {
	if r.report.Failed == 0 {
		return 0, nil // an empty file of failed records may have been removed
	}
	path := r.folder.join(retryDir, "in.jsonl")
	failuresPath := r.folder.join(commit.FailuresFile)
	before, err := os.Stat(failuresPath)
	if err != nil {
		return 0, fault.New(fault.Conflict, "read failures: %w", err)
	}
	made, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fault.New(fault.Storage, "look for an earlier retry: %w; nothing was changed", err)
	}
	if err == nil && made.ModTime().After(before.ModTime()) {
		copied := r.results()
		if copied.Failed = path; copied.CheckFailed() == nil {
			return 1, nil // resume an earlier retry of these failures
		}
	}
	if err := os.RemoveAll(r.folder.join(retryDir)); err != nil {
		return 0, fault.New(fault.Storage, "clear retry folder: %w", err)
	}
	if err := os.Mkdir(r.folder.join(retryDir), 0o700); err != nil {
		return 0, fault.New(fault.Storage, "make retry folder: %w", err)
	}
	if count, err = r.results().CopyFailed(path + ".tmp"); err != nil {
		return 0, err
	}
	if count == 0 {
		return 0, os.RemoveAll(r.folder.join(retryDir))
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return 0, fault.New(fault.Storage, "make retry input: %w", err)
	}
	return count, nil
}

// results describes the job's result files.
func (r *retry) results() amend.Retried {
	old := amend.Retried{
		Output: r.output, Errors: r.manifest.Errors, Failures: r.folder.join(commit.FailuresFile), CRC: r.report.OutputCRC32C,
	}
	if r.parts != nil {
		old.Parts = r.parts.Parts
	}
	return old
}

// merge builds the new files and renames them over the old ones.
func (r *retry) merge(again Report) (Report, error) {
	dir := r.folder.join(retryDir)
	old := r.results()
	old.Failed = filepath.Join(dir, "in.jsonl")
	old.Again = filepath.Join(dir, "out.jsonl")
	old.AgainFailures = filepath.Join(dir, "out.jsonl.gpurun", commit.FailuresFile)
	old.Step, old.Dir = again.Kernel, r.folder.path
	merged, err := old.Merge()
	if err != nil {
		return r.report, err
	}
	report := r.report
	report.Succeeded += again.Succeeded
	report.Dropped += again.Dropped
	report.Failed = 0
	done := chunk.Tally{Kinds: merged.Tally.Kinds, Causes: merged.Tally.Causes, Counts: chunk.Counts{
		Records: report.In, Succeeded: report.Succeeded, Dropped: report.Dropped, Failed: merged.Tally.Failed,
	}}
	parts := commit.NewManifest(merged.Parts, done.Counts)
	report.Started, report.Workers, report.Retried = again.Started, again.Workers, again.In
	report.close(time.Now(), done)
	report.Elapsed, report.Rate, report.Nulls = again.Elapsed, again.Rate, again.Nulls
	report.OutputBytes, report.OutputCRC32C = parts.Bytes, nil
	if r.parts == nil {
		report.OutputCRC32C = &parts.Parts[0].CRC32C
	}
	result := retried{Report: report}
	if r.parts != nil {
		result.Parts = &parts
	}
	data, err := json.Marshal(result)
	if err != nil {
		return report, err
	}
	// From here on the new files are the job's; a crash only delays the renames.
	if err := files.WriteDurably(r.folder.join(retryMarker), data, files.PrivateMode); err != nil {
		return report, fault.New(fault.Storage, "write %s: %w", retryMarker, err)
	}
	crash.Point("retry-merged")
	return report, r.renameFiles()
}

// renameFiles renames the new files over the old ones.
func (r *retry) renameFiles() error {
	var result retried
	data, err := os.ReadFile(r.folder.join(retryMarker))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil {
		return fault.New(fault.Conflict, "read %s: %w", r.folder.join(retryMarker), err)
	}
	finals := [3]string{r.output, r.manifest.Errors, r.folder.join(commit.FailuresFile)}
	for i, next := range amend.NextFiles {
		if finals[i] != "" {
			finals[i] = realPath(finals[i]) // a link stays one
		}
		if err := renameNext(r.folder.join(next), finals[i], result.Parts); err != nil {
			return err
		}
		crash.Point("retry-renamed")
	}
	if err := result.Report.writeDurably(r.folder.join(reportFile)); err != nil {
		return err
	}
	_ = os.RemoveAll(r.folder.join(retryDir))
	return os.Remove(r.folder.join(retryMarker))
}

// renameNext renames a new file, unless that has already happened or the file is not
// needed.
func renameNext(next, final string, parts *commit.Manifest) error {
	info, err := os.Stat(next)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && info.IsDir() && parts != nil:
		return commit.NameFolder(next, final, *parts, true)
	case final == "":
		return os.Remove(next)
	}
	return commit.NameFile(next, final, true)
}

func (r *retry) emit(event Event) {
	if r.config.OnEvent != nil {
		r.config.OnEvent(event)
	}
}
