package shards

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/amend"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Refitted is the output of a job in another layout.
type Refitted struct {
	// Output is its file, or its folder of parts; Arrays are the files of columns beside it.
	Output string
	Arrays []string
	// Sum is the checksum of the file, or of the folder's manifest; ArraySums has one for each array.
	Sum       chunk.FileSum
	ArraySums []chunk.FileSum
}

// Refit writes the rows of a finished job again, of which every record failed before a layout was
// known, in the layout that other jobs have. It writes nothing and returns false if the job has a
// layout.
func (r *Refitted) Refit(ctx context.Context, from string, layout columns.Layout) (bool, error) {
	f := folder.Of(from)
	m, err := f.Manifest()
	if errors.Is(err, os.ErrNotExist) || err == nil && m.Layout != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	report, err := orchestrator.ReadReport(f.Report())
	if err != nil {
		return false, err
	}
	if err := orchestrator.Verify(ctx, from, report); err != nil {
		return false, err
	}
	dir := filepath.Dir(filepath.Clean(r.Output))
	old := amend.Retried{
		Output: m.Spec.Results.Target.Renamed(from), Failures: f.Join(commit.FailuresFile), Failed: filepath.Join(dir, "failed.jsonl"), Dir: dir,
		Format: m.Spec.Results.Format, Store: m.Spec.Results.Store, KeptApart: m.Spec.Results.KeepFailed, Arrays: slices.Clone(m.Spec.Results.Arrays),
		Layout: &layout, NoValues: true,
	}
	if old.KeptApart {
		old.Errors = f.Join(commit.KeptFile)
	}
	if report.OutputCRC32C != nil {
		old.CRC = *report.OutputCRC32C
	}
	parts, err := spec.At(from).Parts()
	if err != nil {
		return false, err
	}
	if parts != nil {
		old.Parts = parts.Parts
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fault.JobFiles.Wrap(err)
	}
	if _, err := old.CopyFailed(old.Failed); err != nil {
		return false, err
	}
	written, err := old.Merge()
	if err != nil {
		return false, err
	}
	if parts != nil {
		*parts = commit.NewManifest(written.Parts, parts.Counts, old.Format)
	}
	return true, r.name(ctx, dir, written, parts)
}

// name gives the new files their names. parts is nil for an output that is a file.
func (r *Refitted) name(ctx context.Context, dir string, written commit.Rewritten, parts *commit.Manifest) error {
	temporary := filepath.Join(dir, commit.Temporary[chunk.Results])
	r.ArraySums = written.ArraySums
	for i, path := range r.Arrays {
		if err := os.Rename(filepath.Join(dir, commit.TemporaryArray(i)), path); err != nil {
			return fault.JobFiles.Wrap(err)
		}
	}
	if parts == nil {
		r.Sum = chunk.FileSum{Bytes: written.Parts[0].Bytes, CRC: uint32(written.Parts[0].CRC32C)}
		return fault.JobFiles.Wrap(os.Rename(temporary, files.Absolute(r.Output)))
	}
	if err := commit.NameFolder(temporary, r.Output, *parts, false); err != nil {
		return err
	}
	var err error
	r.Sum, err = chunk.SumFile(ctx, commit.ManifestPath(r.Output))
	return err
}
