package orchestrator

import (
	"context"
	"iter"
	"os"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// The lines of failed records lack their values of bytes, so a retry reads these from the input, which
// must not have changed.

// bytesOfFailed copies the values of bytes of the failed records, unless an earlier retry did; nil
// if records have none.
func (r *rerun) bytesOfFailed(ctx context.Context) (*source.Beside, error) {
	if len(r.manifest.Bytes) == 0 {
		return nil, nil
	}
	to := &source.Beside{Names: r.manifest.Bytes, Lines: r.job.Failed}
	if _, err := os.Stat(to.Path()); err == nil {
		return to, nil
	}
	inputs, err := r.inputsAgain()
	if err != nil {
		return nil, err
	}
	partial := to.Path() + ".tmp"
	out, err := input.CreateBlobs(partial, len(to.Names))
	if err != nil {
		return nil, fault.JobFiles.New("create retry input: %w", err)
	}
	err = r.copyBlobs(ctx, inputs, out)
	if closed := out.Close(true); err == nil && closed != nil {
		err = fault.JobFiles.New("create retry input: %w", closed)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Rename(partial, to.Path()); err != nil {
		return nil, fault.JobFiles.New("create retry input: %w", err)
	}
	return to, nil
}

// inputsAgain returns the files that the job has read, as they were.
func (r *rerun) inputsAgain() (*source.Inputs, error) {
	was := r.manifest.Input.Files
	if len(was) == 0 {
		return nil, fault.InputChanged.New("the failed records have columns of bytes, which only their input holds, and that was a stream")
	}
	o := source.Options{Format: r.manifest.Spec.Input.Format, Columns: r.manifest.Spec.Input.Columns, SkipBad: r.manifest.Spec.Input.SkipBad}
	for _, file := range was {
		if file.Size < 0 {
			return nil, fault.InputChanged.New("the failed records have columns of bytes, which only their input holds, and %s was a stream", file.Path)
		}
		o.Names = append(o.Names, file.Path)
	}
	inputs, err := source.Find(o)
	if err == nil {
		err = inputs.Check()
	}
	if err != nil {
		return nil, err
	}
	for i, now := range inputs.States() {
		if now.Size != was[i].Size || now.Sum != was[i].Sum && now.Modified != was[i].Modified {
			return nil, fault.InputChanged.New("the failed records have columns of bytes, which only their input holds, and %s has changed since the job read it", now.Path)
		}
	}
	return inputs, nil
}

// copyBlobs writes the values of bytes of the failed records, in order.
func (r *rerun) copyBlobs(ctx context.Context, inputs *source.Inputs, out *input.BlobWriter) error {
	var failed error
	options := format.Options{
		Columns: r.manifest.Spec.Input.Columns, Threads: 1,
		Bytes: &format.Bytes{Names: inputs.Bytes(), Beside: r.manifest.Bytes},
	}
	next, stop := iter.Pull(func(yield func([]format.Blob) bool) {
		failed = inputs.EachBlobs(ctx, options, yield)
	})
	defer stop()
	number := int64(-1) // of the record that blobs belong to
	return record.ReadFailures(r.job.Failures, func(f record.Failure) error {
		if f.Kind == fault.Upstream {
			return nil
		}
		var blobs []format.Blob
		for ; number < f.Record; number++ {
			var more bool
			if blobs, more = next(); !more {
				return fault.InputChanged.New("the input has no record %d: %w", f.Record, failed)
			}
		}
		if err := out.Add(blobs); err != nil {
			return fault.JobFiles.New("create retry input: %w", err)
		}
		return nil
	})
}
