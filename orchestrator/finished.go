package orchestrator

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Verify reads the output of a finished job and compares it with the checksums recorded
// when it was written. A difference is a fault of kind Conflict that says what differs.
func Verify(ctx context.Context, output string, report Report) error {
	if _, err := os.Stat(output); err != nil {
		return fault.OutputMissing.New("the job's output is missing: %w", err)
	}
	err := spec.At(output).Compare(ctx, report.OutputBytes, report.OutputCRC32C)
	if err == nil {
		output, err = compareArrays(ctx, output, report)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return byContext(ctx, fault.ReaderEnded.New("stopped while the output was read"))
	}
	return fault.OutputChanged.New("%s was changed since the job wrote it: %w", output, err)
}

// compareArrays reads the arrays of a finished job and returns the first that differs, and how.
func compareArrays(ctx context.Context, output string, report Report) (string, error) {
	for _, a := range report.Arrays {
		sum, err := chunk.SumFile(ctx, a.Path)
		switch {
		case err != nil:
			return a.Path, err
		case sum.Bytes != a.Bytes:
			return a.Path, fmt.Errorf("it has %d bytes instead of %d", sum.Bytes, a.Bytes)
		case chunk.CRC(sum.CRC) != a.CRC32C:
			return a.Path, fmt.Errorf("it has checksum %s instead of %s", chunk.CRC(sum.CRC), a.CRC32C)
		}
	}
	return output, nil
}

// outputUnchanged reports whether the output of a finished job is unchanged. It is read only if
// it was modified after the report was written: reading takes long, and every
// repetition of the command asks this.
func (f *folder) outputUnchanged(ctx context.Context, output spec.Target, report Report) bool {
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
	info, err := os.Stat(f.join(reportFile))
	return err == nil && (last.Before(info.ModTime()) || Verify(ctx, output.Name, report) == nil)
}

// freshen gives the output of a finished job the current time if a file that it depends on is newer:
// make and others run the command again until the output is the newest.
func (f *folder) freshen(c *order, m *manifest) {
	paths := slices.Clone(c.Inputs)
	for _, file := range slices.Concat(m.Kernel.Files, m.Kernel.Modules) {
		paths = append(paths, file.Path)
	}
	output, err := os.Stat(c.Output.Path)
	if err != nil || !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.ModTime().After(output.ModTime())
	}) {
		return
	}
	now := time.Now()
	_ = os.Chtimes(c.Output.Path, now, now)
	_ = os.Chtimes(f.join(reportFile), now, now.Add(time.Millisecond)) // the output is as it was: see outputUnchanged
}

// noteArrays records what the arrays must contain.
func (r *Report) noteArrays(arrays []commit.Array, sums []chunk.FileSum) {
	r.Arrays = nil
	for i, a := range arrays {
		r.Arrays = append(r.Arrays, ArrayReport{Path: absolute(a.Path), Bytes: sums[i].Bytes, CRC32C: chunk.CRC(sums[i].CRC)})
	}
}

// noteOutput records what the output must contain, and its size before encoding.
func (r *Report) noteOutput(sum chunk.FileSum, unencoded int64, format encode.Format) {
	crc := chunk.CRC(sum.CRC)
	r.OutputBytes, r.OutputCRC32C, r.Unencoded = sum.Bytes, &crc, format.Unencoded(unencoded)
}
