package shards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Combined is an output that consists of the outputs of finished jobs, one after the other,
// which have computed ranges of one input.
type Combined struct {
	// Output and Errors are its files.
	Output, Errors string
	// Sum is the checksum of an output that is a file.
	Sum chunk.FileSum
	// Arrays are the files of columns beside the output, ArraySums their checksums, and Layout is
	// that of the columns; nil if it is unknown, because no record has a result.
	Arrays    []commit.Array
	ArraySums []chunk.FileSum
	Layout    *columns.Layout
	// Print is the fingerprint in the Survey by which the input was divided.
	Print json.RawMessage
	// Pieces are the jobs, in input order.
	Pieces []Piece

	// What load reads of the pieces: the first manifest that one has, the folders, and the reports;
	// without a folder, what is known of the piece.
	first   *folder.Manifest
	folders []*folder.Folder
	reports []orchestrator.Report
}

// Piece is one of those jobs.
type Piece struct {
	// Output is where it wrote its results; its job folder is next to that, unless the job
	// has removed it.
	Output string
	// Bytes is the size of its results.
	Bytes int64
	chunk.Counts
	// Machine is the name of the one that computed it.
	Machine string
}

// Combine writes the job folder of an output that was combined, so that Inspect and Retry
// treat it as one job's. It replaces the folder of an earlier job; an unfinished one
// is a fault of kind Conflict.
func Combine(ctx context.Context, c Combined) error {
	if err := c.load(); err != nil || c.first == nil {
		return err // nothing was kept
	}
	f, err := folder.Open(ctx, c.first.Spec.Writing(c.output()), func(string) {})
	if err != nil {
		return err
	}
	defer f.Close(true)
	switch unfinished, err := f.Unfinished(); {
	case err != nil:
		return err
	case unfinished != nil:
		return fault.ShardTaken.New("%s belongs to an unfinished job with the same output", f.Path)
	}
	if err := f.Begin(); err != nil {
		return err
	}
	if err := c.write(f); err != nil {
		return fault.JobFiles.Wrap(err)
	}
	return nil
}

// output returns where the combined output is.
func (c *Combined) output() orchestrator.Output {
	o := orchestrator.Output{Path: c.Output, Errors: c.Errors, Arrays: slices.Clone(c.first.Spec.Output.Arrays)}
	for _, a := range c.Arrays {
		if !a.Mask {
			o.Arrays[a.Column].Path = a.Path
		}
	}
	return o
}

// load reads the job folders of the pieces.
func (c *Combined) load() error {
	for _, p := range c.Pieces {
		f := folder.Of(p.Output)
		m, err := f.Manifest()
		report := orchestrator.Report{In: p.Records, Succeeded: p.Succeeded, Failed: p.Failed, Dropped: p.Dropped}
		switch {
		case err == nil:
			if report, err = orchestrator.ReadReport(f.Report()); err != nil {
				return err
			}
			if c.first == nil {
				c.first = m
			}
		case p.Failed > 0 || !errors.Is(err, os.ErrNotExist):
			return fault.RunDamaged.New("what is known of the failed records of %s: %w", p.Output, err)
		}
		c.folders, c.reports = append(c.folders, f), append(c.reports, report)
	}
	if c.first == nil && len(c.Pieces) == 0 { // no record, hence no piece
		c.first = new(folder.Manifest)
		return json.Unmarshal(c.Print, &c.first.Identity)
	}
	return nil
}

// write writes the files of the folder. The manifest comes last: without it there is no job.
func (c *Combined) write(f *folder.Folder) error {
	if err := c.writeFailures(f); err != nil {
		return err
	}
	report := c.report()
	if err := report.Save(f.Report()); err != nil {
		return err
	}
	m := *c.first
	var whole folder.Identity
	if err := json.Unmarshal(c.Print, &whole); err != nil {
		return err
	}
	m.Input, m.Spec, m.Created = whole.Input, m.Spec.Writing(c.output()), report.Started
	m.Layout = c.Layout
	m.Spec.Input.Offset, m.Spec.Input.Limit = whole.Spec.Input.Offset, whole.Spec.Input.Limit
	m.Cut = input.Cut{Records: report.In, Blank: report.Blank}
	f.Finish(false)
	crash.Point("combining")
	return f.Save(m)
}

// writeFailures concatenates the lists of failed records, whose positions count from the start of
// the whole output, and those records, if the output cannot hold them.
func (c *Combined) writeFailures(f *folder.Folder) error {
	base, next := int64(0), 0 // of the piece
	err := c.concatenate(f, commit.FailuresFile, func(out io.Writer, in io.Reader, piece int) error {
		for ; next < piece; next++ {
			length, err := c.length(next)
			if err != nil {
				return fault.RunDamaged.New("the size of %s before it was compressed is unknown: %w", c.Pieces[next].Output, err)
			}
			base += length
		}
		_, err := record.MoveFailures(out, in, base)
		return err
	})
	if err != nil || !c.first.Spec.Results.KeepFailed {
		return err
	}
	return c.concatenate(f, commit.KeptFile, func(out io.Writer, in io.Reader, _ int) error {
		_, err := io.Copy(out, in)
		return err
	})
}

// concatenate writes a file of the pieces with failed records, one after the other.
func (c *Combined) concatenate(f *folder.Folder, name string, copy func(out io.Writer, in io.Reader, piece int) error) error {
	out, err := files.Create(f.Join(name), files.PrivateMode)
	if err != nil {
		return err
	}
	defer out.Close()
	for i, piece := range c.folders {
		if c.reports[i].Failed == 0 {
			continue
		}
		in, err := os.Open(piece.Join(name))
		if err != nil {
			return err
		}
		err = copy(out, in, i)
		if in.Close(); err != nil {
			return err
		}
	}
	return cmp.Or(out.Sync(), out.Close())
}

// length returns the size of a piece's results before they were encoded.
func (c *Combined) length(i int) (int64, error) {
	unencoded := c.reports[i].Unencoded
	if c.reports[i].Started.IsZero() {
		unencoded = -1 // its report is gone
	}
	return spec.At(c.Pieces[i].Output).Length(c.first.Spec.Results.Format, c.Pieces[i].Bytes, unencoded)
}

// report adds up the reports of the pieces.
func (c *Combined) report() orchestrator.Report {
	var tally chunk.Tally
	r := orchestrator.Report{Output: c.Output, Errors: c.Errors, Workers: []orchestrator.WorkerReport{}}
	var ended time.Time
	for i, piece := range c.reports {
		if piece.Started.IsZero() {
			add(&r, piece) // only its counts are known
			continue
		}
		if r.Started.IsZero() || piece.Started.Before(r.Started) {
			r.Started = piece.Started
		}
		if end := piece.Started.Add(piece.Elapsed); end.After(ended) {
			ended = end
		}
		if r.Kernel == "" {
			r.Input, r.Format = piece.Input, piece.Format
			r.Kernel, r.BatchSize, r.Concurrency, r.Unit, r.GroupBy = piece.Kernel, piece.BatchSize, piece.Concurrency, piece.Unit, piece.GroupBy
		}
		add(&r, piece)
		addWorkers(&r, piece.Workers, c.Pieces[i].Machine)
		tally.Add(failureTally(piece))
	}
	if len(c.reports) == 0 {
		r.Input, r.Kernel, r.Started = c.first.Input.Path, c.first.Spec.Kernel.Name, time.Now()
		ended = r.Started
	}
	r.Failures, r.Causes = orchestrator.FailureReports(tally.Kinds), orchestrator.FailureReports(tally.Causes)
	r.Elapsed = ended.Sub(r.Started)
	r.Computed = r.In
	r.Rate = event.Rate(r.In, r.Elapsed)
	r.SetOutput(c.Sum, r.Unencoded)
	for i, sum := range c.ArraySums {
		r.Arrays = append(r.Arrays, orchestrator.ArrayReport{Path: c.Arrays[i].Path, Bytes: sum.Bytes, CRC32C: chunk.CRC(sum.CRC)})
	}
	if parts, _ := spec.At(c.Output).Parts(); parts != nil {
		r.OutputBytes, r.OutputCRC32C = parts.Bytes, nil
	}
	return r
}

// add adds the counts of another report.
func add(r *orchestrator.Report, other orchestrator.Report) {
	r.In += other.In
	r.Succeeded += other.Succeeded
	r.Failed += other.Failed
	r.Dropped += other.Dropped
	r.Blank += other.Blank
	r.Nulls += other.Nulls
	r.Unencoded += other.Unencoded
	for _, skip := range other.SkippedInputs {
		if !slices.Contains(r.SkippedInputs, skip) { // several jobs may have met the same damage
			r.SkippedInputs = append(r.SkippedInputs, skip)
		}
	}
	r.AddUsage(other.Usage)
}

// addWorkers adds workers of a machine to those of the same devices.
func addWorkers(r *orchestrator.Report, workers []orchestrator.WorkerReport, machine string) {
	for _, w := range workers {
		device := machine + " " + w.Device
		i := slices.IndexFunc(r.Workers, func(w orchestrator.WorkerReport) bool { return w.Device == device })
		if i < 0 {
			i = len(r.Workers)
			r.Workers = append(r.Workers, orchestrator.WorkerReport{Slot: i, Device: device})
		}
		to := &r.Workers[i]
		alive := seconds(to.Records, to.Rate) + seconds(w.Records, w.Rate)
		to.Records += w.Records
		to.Chunks += w.Chunks
		to.Batches += w.Batches
		to.BatchSize = max(to.BatchSize, w.BatchSize)
		to.Busy += w.Busy
		to.Load += w.Load
		to.CPU += w.CPU
		to.WaitedInput += w.WaitedInput
		to.WaitedOutput += w.WaitedOutput
		to.Restarts += w.Restarts
		to.Retries += w.Retries
		to.Lost += w.Lost
		to.Retired = to.Retired || w.Retired
		if alive > 0 {
			to.Rate, to.BusyShare = float64(to.Records)/alive, min(1, to.Busy.Seconds()/alive)
		}
	}
}

// seconds returns how long records took at a rate; 0 if the rate is unknown.
func seconds(records int64, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return float64(records) / rate
}

// failureTally returns the statistics on failed records that a report was made of.
func failureTally(r orchestrator.Report) (t chunk.Tally) {
	for _, f := range r.Failures {
		t.Add(chunk.Tally{Kinds: map[string]chunk.KindStats{f.Kind: f.KindStats}})
	}
	for _, f := range r.Causes {
		t.Add(chunk.Tally{Causes: map[string]chunk.KindStats{f.Kind + ": " + fault.Shape(f.Example): f.KindStats}})
	}
	return t
}
