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
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Job is the finished job: its result files, and those of the retry.
type Job struct {
	amend.Retried
	// Folder is the job folder.
	Folder string
	// Manifest lists the parts if the output is a folder; nil for a file.
	Manifest *commit.Manifest
}

// dir is where the failed records are computed again, next where the new files are. marker means
// that they are complete and only need to be renamed.
const (
	dir    = "retry"
	next   = "retry.next"
	marker = "retry.json"
)

// New returns the job with this folder. The caller adds what it knows about the result files.
// Failed is the file of failed records; Again is the output of the job that computes them, with
// its job folder next to it.
func New(folder string) Job {
	j := Job{Folder: folder}
	j.Failures, j.Dir = j.join(commit.FailuresFile), j.join(next)
	j.Failed, j.Again = j.join(dir, "in.jsonl"), j.join(dir, "out.jsonl")
	return j
}

func (j Job) join(names ...string) string {
	return filepath.Join(append([]string{j.Folder}, names...)...)
}

// Collect writes the failed records to Failed, unless an earlier retry did, and returns how
// many there are, or 1 in that case.
func (j Job) Collect() (count int64, err error) {
	before, err := os.Stat(j.Failures)
	if err != nil {
		return 0, fault.JobFiles.Of(fault.Conflict, "read failures: %w", err)
	}
	made, err := os.Stat(j.Failed)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fault.JobFiles.New("look for an earlier retry: %w; nothing was changed", err)
	}
	if err == nil && made.ModTime().After(before.ModTime()) && j.CheckFailed() == nil {
		return 1, nil
	}
	if err := os.RemoveAll(j.join(dir)); err != nil {
		return 0, fault.JobFiles.New("clear retry folder: %w", err)
	}
	if err := os.Mkdir(j.join(dir), 0o700); err != nil {
		return 0, fault.JobFiles.New("make retry folder: %w", err)
	}
	if count, err = j.CopyFailed(j.Failed + ".tmp"); err != nil {
		return 0, err
	}
	if count == 0 {
		return 0, os.RemoveAll(j.join(dir))
	}
	if err := os.Rename(j.Failed+".tmp", j.Failed); err != nil {
		return 0, fault.JobFiles.New("make retry input: %w", err)
	}
	return count, nil
}

// merged is the content of the marker: the state after the files are renamed.
type merged struct {
	Report any              `json:"report"`
	Parts  *commit.Manifest `json:"parts,omitempty"`
	// Sums are the checksums of the new files, by name.
	Sums map[string]chunk.FileSum `json:"sums"`
}

// Commit makes the new files the job's: a crash from here on only delays their renaming.
// report is the job's new report, parts lists the parts of the output (a file is its only part), and
// arrays are the checksums of the arrays.
func (j Job) Commit(ctx context.Context, report any, parts commit.Manifest, arrays []chunk.FileSum) error {
	m := merged{report, &parts, make(map[string]chunk.FileSum)}
	if j.Manifest == nil {
		m.Parts, m.Sums[commit.Temporary[chunk.Results]] = nil, chunk.FileSum{Bytes: parts.Bytes, CRC: uint32(parts.Parts[0].CRC32C)}
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
	names, paths = append(names, commit.Temporary[:]...), append(paths, j.Output, j.Errors, j.Failures)
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
