package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Combined is an output that consists of the outputs of finished jobs, one after the other,
// which have computed ranges of one input.
type Combined struct {
	// Output and Errors are its files.
	Output, Errors string
	// Sum is the checksum of an output that is a file.
	Sum chunk.FileSum
	// Print is the fingerprint in the Survey by which the input was divided.
	Print json.RawMessage
	// Pieces are the jobs, in input order.
	Pieces []Piece
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
// treat it like that of one job. It replaces the folder of an earlier job; an unfinished one
// is a fault of kind Conflict.
func Combine(ctx context.Context, c Combined) error {
	combined := &combination{Combined: c}
	if err := combined.load(); err != nil || combined.first == nil {
		return err // nothing was kept
	}
	f, err := openFolder(ctx, combined.first.Spec.Writing(c.Output, c.Errors), func(string) {})
	if err != nil {
		return err
	}
	defer f.close(true)
	switch unfinished, err := f.unfinished(); {
	case err != nil:
		return err
	case unfinished != nil:
		return fault.ShardTaken.New("%s belongs to an unfinished job with the same output", f.path)
	}
	if err := f.begin(); err != nil {
		return err
	}
	if err := combined.write(f); err != nil {
		return fault.JobFiles.Wrap(err)
	}
	return nil
}

// combination is a Combined whose pieces are being read.
type combination struct {
	Combined
	first   *manifest // of the first piece that has one; nil if none has
	folders []*folder
	reports []Report // without a folder: what is known of the piece
}

// load reads the job folders of the pieces.
func (c *combination) load() error {
	for _, p := range c.Pieces {
		f := folderOf(p.Output)
		m, err := readManifest(f.join(manifestFile))
		report := Report{In: p.Records, Succeeded: p.Succeeded, Failed: p.Failed, Dropped: p.Dropped}
		switch {
		case err == nil:
			if report, err = readReport(f.join(reportFile)); err != nil {
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
		c.first = new(manifest)
		return json.Unmarshal(c.Print, &c.first.identity)
	}
	return nil
}

// write writes the files of the folder. The manifest comes last: without it there is no job.
func (c *combination) write(f *folder) error {
	if err := c.writeFailures(f); err != nil {
		return err
	}
	report := c.report()
	if err := report.writeDurably(f.join(reportFile)); err != nil {
		return err
	}
	m := *c.first
	var whole identity
	if err := json.Unmarshal(c.Print, &whole); err != nil {
		return err
	}
	m.Input, m.Spec, m.Created = whole.Input, m.Spec.Writing(c.Output, c.Errors), report.Started
	m.Spec.Input.Offset, m.Spec.Input.Limit = whole.Spec.Input.Offset, whole.Spec.Input.Limit
	m.Cut = input.Cut{Records: report.In, Blank: report.Blank}
	f.finish(false)
	crash.Point("combining")
	return f.save(m)
}

// writeFailures concatenates the lists of failed records, whose positions count from the start of
// the whole output, and those records, if the output cannot hold them.
func (c *combination) writeFailures(f *folder) error {
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
func (c *combination) concatenate(f *folder, name string, copy func(out io.Writer, in io.Reader, piece int) error) error {
	out, err := files.Create(f.join(name), files.PrivateMode)
	if err != nil {
		return err
	}
	defer out.Close()
	for i, piece := range c.folders {
		if c.reports[i].Failed == 0 {
			continue
		}
		in, err := os.Open(piece.join(name))
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
func (c *combination) length(i int) (int64, error) {
	unencoded := c.reports[i].Unencoded
	if c.reports[i].Started.IsZero() {
		unencoded = -1 // its report is gone
	}
	return spec.At(c.Pieces[i].Output).Length(c.first.Spec.Results.Format, c.Pieces[i].Bytes, unencoded)
}

// report adds up the reports of the pieces.
func (c *combination) report() Report {
	var tally chunk.Tally
	r := Report{Output: c.Output, Errors: c.Errors, Workers: []WorkerReport{}}
	var ended time.Time
	for i, piece := range c.reports {
		if piece.Started.IsZero() {
			r.add(piece) // only its counts are known
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
		r.add(piece)
		r.addWorkers(piece.Workers, c.Pieces[i].Machine)
		tally.Add(piece.failureTally())
	}
	if len(c.reports) == 0 {
		r.Input, r.Kernel, r.Started = c.first.Input.Path, c.first.Spec.Kernel.Name, time.Now()
		ended = r.Started
	}
	r.Failures, r.Causes = FailureReports(tally.Kinds), FailureReports(tally.Causes)
	r.Elapsed = ended.Sub(r.Started)
	r.Computed = r.In
	r.Rate = event.Rate(r.In, r.Elapsed)
	r.noteOutput(c.Sum, r.Unencoded)
	if parts, _ := spec.At(c.Output).Parts(); parts != nil {
		r.OutputBytes, r.OutputCRC32C = parts.Bytes, nil
	}
	return r
}

// add adds the counts of another report.
func (r *Report) add(other Report) {
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
	r.addUsage(other.Usage)
}

// addUsage adds what the kernels of another job have counted.
func (r *Report) addUsage(usage map[string]int64) {
	sum := maps.Clone(r.Usage)
	for name, n := range usage {
		if sum == nil {
			sum = make(map[string]int64)
		}
		sum[name] += n
	}
	r.Usage = sum
}

// addWorkers adds workers of a machine to those of the same devices.
func (r *Report) addWorkers(workers []WorkerReport, machine string) {
	for _, w := range workers {
		device := machine + " " + w.Device
		i := slices.IndexFunc(r.Workers, func(w WorkerReport) bool { return w.Device == device })
		if i < 0 {
			i = len(r.Workers)
			r.Workers = append(r.Workers, WorkerReport{Slot: i, Device: device})
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
func (r Report) failureTally() (t chunk.Tally) {
	for _, f := range r.Failures {
		t.Add(chunk.Tally{Kinds: f.tally().Kinds})
	}
	for _, f := range r.Causes {
		t.Add(chunk.Tally{Causes: f.tally().Causes})
	}
	return t
}

func (f FailureReport) tally() chunk.Tally {
	t := chunk.FailureTally(f.Kind, f.Example, f.Detail, f.Line).In(chunk.Origin{File: f.File, Row: f.Rows}, 0)
	for _, all := range []map[string]chunk.KindStats{t.Kinds, t.Causes} {
		for name, stats := range all {
			stats.Count = f.Count
			all[name] = stats
		}
	}
	return t
}
