package view

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// Recorded is a job as its folder describes it: finished, interrupted, or running in
// another process.
type Recorded struct {
	View    View    `json:"view"`
	History History `json:"history"`
	// Examples are failed records, the first few of each cause.
	Examples []record.Failure `json:"examples"`
}

const (
	// maxFailuresRead limits how many failed records are read for examples and positions.
	maxFailuresRead = 100_000
	causeExamples   = 3
	maxCausesShown  = 64
	maxDetail       = 8 << 10
)

// FailuresPath returns the file of a job folder that describes the failed records.
func FailuresPath(folder string) string {
	path := filepath.Join(folder, commit.PartialFailures)
	if _, err := os.Lstat(path); err != nil {
		return filepath.Join(folder, commit.FailuresFile)
	}
	return path
}

// Record returns a job as its folder describes it.
func Record(s orchestrator.Status) Recorded {
	h, t := load(s.Folder)
	report := s.Report
	r := Recorded{History: h.show(), Examples: []record.Failure{}, View: New(PhaseEnded)}
	v := &r.View
	if v.end(&report); s.State == orchestrator.Running {
		v.Phase = PhaseRunning
	}
	v.Time, v.Started, v.Resumed, v.ResumedAnswers = time.Now(), report.Started, report.Resumed, report.ResumedAnswers
	v.Concurrency, v.BatchSize, v.Latency, v.Timeline = report.Concurrency, report.BatchSize, report.Latency, t.show()
	v.Elapsed = report.Elapsed.Seconds()
	if computed := h.computed(); computed > 0 {
		v.Elapsed = computed.Seconds()
		v.AverageRate = rate(v.Reached(), computed)
	}
	v.addReported(report, h.names)
	strip := recordedStrip(s)
	r.readFailures(s, &strip)
	v.Strip = strip.show(v.Total, s.First, nil)
	var examples []Failure
	for _, e := range r.Examples {
		examples = append(examples, Failure{Kind: e.Kind.String(), KindStats: chunk.KindStats{Line: e.Line, Detail: e.Detail}})
	}
	v.addFailures(report.Causes, report.Failures, examples...)
	return r
}

// computed is how long the job's runs took together.
func (h *history) computed() (d time.Duration) {
	for i, p := range h.points {
		if i > 0 && !p.Gap && !h.points[i-1].Gap {
			d += p.at().Sub(h.points[i-1].at())
		}
	}
	return d
}

// addReported adds the workers and devices of a report, and the devices of its history.
func (v *View) addReported(report orchestrator.Report, names []string) {
	for _, w := range report.Workers {
		device := orchestrator.DeviceOf(w.Device)
		v.Workers = append(v.Workers, Worker{
			Slot: w.Slot, Name: w.Device, Device: device, Phase: PhaseEnded, Total: w.Records,
			Batches: w.Batches, Restarts: w.Restarts, Retries: w.Retries, Lost: w.Lost, Busy: w.Busy,
		})
		if !slices.Contains(names, device) {
			names = append(slices.Clone(names), device)
		}
	}
	for _, name := range names {
		d := newDevice(name)
		for _, reported := range report.Devices {
			if reported.Device == name {
				d.GPU, d.Name, d.Problem = true, reported.Name, reported.Problem
			}
		}
		v.Devices = append(v.Devices, d)
	}
}

// recordedStrip returns what is done; where records failed is read from their file.
func recordedStrip(s orchestrator.Status) strip {
	var cells strip
	cells.total(s.Report.In)
	if s.State == orchestrator.Done {
		cells.add(0, s.Report.In-s.Report.Pending, 0)
		return cells
	}
	for _, r := range s.Ranges {
		cells.add(r.First-s.First, r.Records, 0)
	}
	return cells
}

var errEnough = errors.New("enough failures")

// readFailures reads examples and the positions of failed records. A damaged file, or one
// that another process is writing to, ends the list.
func (r *Recorded) readFailures(s orchestrator.Status, cells *strip) {
	seen, read := make(map[string]int), 0
	_ = record.ReadFailures(FailuresPath(s.Folder), func(f record.Failure) error {
		if read++; read > maxFailuresRead {
			return errEnough
		}
		cells.fail(f.Record - s.First)
		cause := f.Kind.String() + ": " + fault.Shape(f.Message)
		if n, known := seen[cause]; n < causeExamples && (known || len(seen) < maxCausesShown) {
			seen[cause]++
			f.Detail = f.Detail[max(0, len(f.Detail)-maxDetail):]
			r.Examples = append(r.Examples, f)
		}
		return nil
	})
}

// addFailures adds the failed records by cause, most frequent first, and by kind. A cause
// without a traceback gets that of an example in the same line, also of the first of its kind.
func (v *View) addFailures(causes, kinds []Failure, examples ...Failure) {
	v.Failures, v.FailuresByKind = append([]Failure{}, causes...), make(map[string]int64)
	for _, k := range kinds {
		v.FailuresByKind[k.Kind] = k.Count
	}
	for i := range v.Failures {
		f := &v.Failures[i]
		for _, e := range slices.Concat(kinds, examples) {
			if f.Detail == "" && e.Line == f.Line && e.Kind == f.Kind {
				f.Detail = e.Detail
			}
		}
	}
}
