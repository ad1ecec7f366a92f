package orchestrator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Verify reads the output of a finished job and compares it with the checksums recorded
// when it was written. A difference is a fault of kind Conflict that says what differs.
func Verify(ctx context.Context, output string, report Report) error {
	if _, err := os.Stat(output); err != nil {
		return fault.New(fault.Usage, "the job's output is missing: %w", err)
	}
	err := compareOutput(ctx, output, report)
	if err == nil {
		output, err = compareArrays(ctx, output, report)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return byContext(ctx, fault.New(fault.Canceled, "stopped while the output was read"))
	}
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", output, err)
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

func compareOutput(ctx context.Context, output string, report Report) error {
	if keepsParts(output) || files.IsFolder(output) {
		m, err := commit.ReadManifest(output)
		if err == nil && m.Bytes != report.OutputBytes {
			err = fmt.Errorf("its parts have %d bytes instead of %d", m.Bytes, report.OutputBytes)
		}
		if err == nil {
			err = m.Check(ctx, output)
		}
		return err
	}
	info, err := os.Stat(output)
	switch {
	case err != nil:
		return err
	case info.Size() != report.OutputBytes:
		return fmt.Errorf("it has %d bytes instead of %d", info.Size(), report.OutputBytes)
	}
	sum, err := chunk.SumFile(ctx, output)
	if crc := chunk.CRC(sum.CRC); err == nil && (report.OutputCRC32C == nil || crc != *report.OutputCRC32C) {
		err = fmt.Errorf("it has checksum %s instead of %v", crc, report.OutputCRC32C)
	}
	return err
}

// outputUnchanged reports whether the output of a finished job is unchanged. It is read only if
// it was modified after the report was written: reading takes long, and every
// repetition of the command asks this.
func (f *folder) outputUnchanged(ctx context.Context, output string, report Report) bool {
	if outputBytes(output) != report.OutputBytes {
		return false
	}
	last := modified(output)
	for _, a := range report.Arrays {
		if outputBytes(a.Path) != a.Bytes {
			return false
		}
		if at := modified(a.Path); at.After(last) {
			last = at
		}
	}
	info, err := os.Stat(f.join(reportFile))
	return err == nil && (last.Before(info.ModTime()) || Verify(ctx, output, report) == nil)
}

// freshen gives the output of a finished job the current time if a file that it depends on is newer:
// make and others run the command again until the output is the newest.
func (f *folder) freshen(c Config, m *manifest) {
	paths := c.inputPaths()
	for _, file := range slices.Concat(m.Fingerprint.Kernel.Files, m.Fingerprint.Kernel.Modules) {
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

// modified returns when an output was last written; for one in parts, its latest part.
func modified(output string) (last time.Time) {
	paths := []string{output}
	if keepsParts(output) {
		paths, _ = filepath.Glob(filepath.Join(output, "*"))
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
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
	r.OutputBytes, r.OutputCRC32C = sum.Bytes, &crc
	if format.Encodes() && !format.Table {
		r.Unencoded = unencoded
	}
}
