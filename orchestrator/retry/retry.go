// Package retry keeps the files of a retry in the folder of a finished job: its failed
// records, which another job computes again, and the new result files until they replace
// the old ones. The process may be killed at any moment; the next retry continues.
package retry

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/amend"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Job is the finished job.
type Job struct {
	// Folder is the job folder, Output and Errors are the result files; Output ends with
	// a slash if it is a folder.
	Folder, Output, Errors string
	// CRC is the checksum of an output that is a file.
	CRC chunk.CRC
	// Format is that of the output.
	Format encode.Format
	// SourceField is the member of results that says where their record comes from.
	SourceField string
	// Store is how parts kept their results.
	Store chunk.Store
	// Parts is the manifest of an output that is a folder; nil for a file.
	Parts *commit.Manifest
	// KeptApart: Errors is in the job folder, because the output does not hold the failed
	// records.
	KeptApart bool
	// Layout is that of the columns of a job that has some; nil also if no record succeeded.
	// NewLayout is that of the new results.
	Layout, NewLayout *columns.Layout
	// Arrays are the arrays beside the output, ArraySums their checksums.
	Arrays    []commit.Array
	ArraySums []chunk.FileSum
}

// dir is where the failed records are computed again, next where the new files are. marker means
// that they are complete and only need to be renamed.
const (
	dir    = "retry"
	next   = "retry.next"
	marker = "retry.json"
)

func (j Job) join(names ...string) string {
	return filepath.Join(append([]string{j.Folder}, names...)...)
}

// Input is the file of failed records, Results the output of the job that computes them.
func (j Job) Input() string { return j.join(dir, "in.jsonl") }

// Results is the output of the job that computes Input, with its job folder next to it.
func (j Job) Results() string { return j.join(dir, "out.jsonl") }

// Collect writes the failed records to Input, unless an earlier retry did, and returns how
// many there are, or 1 in that case.
func (j Job) Collect() (count int64, err error) {
	before, err := os.Stat(j.join(commit.FailuresFile))
	if err != nil {
		return 0, fault.JobFiles.Of(fault.Conflict, "read failures: %w", err)
	}
	made, err := os.Stat(j.Input())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fault.JobFiles.New("look for an earlier retry: %w; nothing was changed", err)
	}
	if err == nil && made.ModTime().After(before.ModTime()) && j.results().CheckFailed() == nil {
		return 1, nil
	}
	if err := os.RemoveAll(j.join(dir)); err != nil {
		return 0, fault.JobFiles.New("clear retry folder: %w", err)
	}
	if err := os.Mkdir(j.join(dir), 0o700); err != nil {
		return 0, fault.JobFiles.New("make retry folder: %w", err)
	}
	if count, err = j.results().CopyFailed(j.Input() + ".tmp"); err != nil {
		return 0, err
	}
	if count == 0 {
		return 0, os.RemoveAll(j.join(dir))
	}
	if err := os.Rename(j.Input()+".tmp", j.Input()); err != nil {
		return 0, fault.JobFiles.New("make retry input: %w", err)
	}
	return count, nil
}

// results describes the job's result files and the new results.
func (j Job) results() amend.Retried {
	r := amend.Retried{
		Output: j.Output, Errors: j.Errors, Failures: j.join(commit.FailuresFile), CRC: j.CRC, Format: j.Format, SourceField: j.SourceField, Store: j.Store,
		Failed: j.Input(), Again: j.Results(),
		Dir: j.join(next),
	}
	if j.Parts != nil {
		r.Parts = j.Parts.Parts
	}
	r.Layout, r.NoValues, r.Arrays, r.ArraySums = j.NewLayout, j.Layout == nil && j.NewLayout != nil, j.Arrays, j.ArraySums
	r.KeptApart = j.KeptApart
	return r
}

// Merge builds the new files from the old ones and the results.
func (j Job) Merge() (commit.Rewritten, error) { return j.results().Merge() }

// merged is the content of the marker: the state after the files are renamed.
type merged struct {
	Report any              `json:"report"`
	Parts  *commit.Manifest `json:"parts,omitempty"`
	// Sums are the checksums of the new files, by name.
	Sums map[string]chunk.FileSum `json:"sums"`
}

// Commit makes the new files the job's: a crash from here on only delays their renaming.
// report is the job's new report. If the output is a folder, parts is its manifest; otherwise parts
// is nil, and output is the checksum of the output file. arrays are the checksums of the arrays.
func (j Job) Commit(ctx context.Context, report any, parts *commit.Manifest, output chunk.FileSum, arrays []chunk.FileSum) error {
	m := merged{report, parts, make(map[string]chunk.FileSum)}
	if parts == nil {
		m.Sums[commit.Temporary[chunk.Results]] = output
	}
	for i, sum := range arrays {
		m.Sums[commit.TemporaryArray(i)] = sum
	}
	for _, name := range []string{commit.Temporary[chunk.FailedRecords], commit.Temporary[chunk.Failures]} {
		sum, err := chunk.SumFile(ctx, j.join(next, name))
		switch {
		case err == nil:
			m.Sums[name] = sum
		case !errors.Is(err, os.ErrNotExist):
			return fault.JobFiles.New("read %s: %w", name, err)
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := files.WriteDurably(j.join(marker), data, files.PrivateMode); err != nil {
		return fault.JobFiles.New("write %s: %w", marker, err)
	}
	crash.Point("retry-merged")
	return nil
}

// Committed reports whether new files may wait in a job folder to be renamed.
func Committed(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, marker))
	return !errors.Is(err, os.ErrNotExist)
}

// read decodes the marker, with the report into report.
func (j Job) read(report any) (result merged, err error) {
	result.Report = report
	data, err := os.ReadFile(j.join(marker))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil {
		return result, fault.JobFiles.Of(fault.Conflict, "read %s: %w", j.join(marker), err)
	}
	return result, nil
}

// finals returns where the new files belong, those first that may be replaced before the output:
// their names, and their final paths, which are empty for files that are not needed.
func (j Job) finals() (names, paths []string) {
	for i, a := range j.Arrays {
		names, paths = append(names, commit.TemporaryArray(i)), append(paths, a.Path)
	}
	names, paths = append(names, commit.Temporary[:]...), append(paths, j.Output, j.Errors, j.join(commit.FailuresFile))
	for i, path := range paths {
		if path != "" {
			paths[i] = files.RealPath(path) // a link stays one
		}
	}
	return names, paths
}

// Check reads back the new files of a retry that was interrupted, or those that it has already
// renamed. Damaged ones must not replace good results. A folder of parts is checked when it
// is named.
func (j Job) Check(ctx context.Context) error {
	result, err := j.read(new(json.RawMessage))
	if err != nil {
		return err
	}
	names, finals := j.finals()
	for i, name := range names {
		want, known := result.Sums[name]
		path := j.join(next, name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			path = finals[i]
		}
		if !known || path == "" {
			continue
		}
		if got, err := chunk.SumFile(ctx, path); err != nil || got != want {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fault.RetryDamaged.New("a retry was interrupted when its results were complete, and %s is damaged since; nothing was replaced now: remove %s, and retry again", path, j.join(marker))
		}
	}
	return nil
}

// Replace renames the new files over the old ones and decodes the new report. The caller
// must save the report and call Clear.
func (j Job) Replace(report any) error {
	result, err := j.read(report)
	if err != nil {
		return err
	}
	names, finals := j.finals()
	for i, name := range names {
		if err := rename(j.join(next, name), finals[i], result.Parts); err != nil {
			return err
		}
		crash.Point("retry-renamed")
	}
	return nil
}

// rename renames a new file, unless that has already happened or the file is not needed.
func rename(next, final string, parts *commit.Manifest) error {
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

// Clear removes the files of the retry when the job's report is saved.
func (j Job) Clear() error {
	_ = os.RemoveAll(j.join(dir))
	_ = os.RemoveAll(j.join(next))
	return os.Remove(j.join(marker))
}
