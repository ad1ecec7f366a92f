package orchestrator

import (
	"encoding/json"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Report is what became of a job. For every way in which a job can end,
// In = Succeeded + Failed + Dropped + Pending.
type Report struct {
	Input   string        `json:"input"`
	Output  string        `json:"output"`
	Errors  string        `json:"errors,omitempty"`
	Kernel  string        `json:"kernel"`
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed_ns"`

	In        int64 `json:"in"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
	// Pending records were not computed: 0 unless the job stopped early.
	Pending int64 `json:"pending"`
	// Blank lines were skipped; they are no records.
	Blank int64 `json:"blank_lines"`

	BatchSize int     `json:"batch_size"`
	Rate      float64 `json:"records_per_second"`
	// Workers are the slots.
	Workers []WorkerReport `json:"workers"`
	// Failures are the failed records by kind, most first.
	Failures []FailureReport `json:"failures,omitempty"`
	// Folder is the job folder, with logs and failures.jsonl.
	Folder string `json:"folder,omitempty"`
	// Stop is why the job stopped early; nil if it did not.
	Stop *fault.Error `json:"stop,omitempty"`
}

// WorkerReport is one slot's share.
type WorkerReport struct {
	Slot    int    `json:"slot"`
	Device  string `json:"device"`
	Records int64  `json:"records"`
	Chunks  int64  `json:"chunks"`
	Batches int64  `json:"batches"`
	// Busy is how long its kernel had something to compute; BusyShare that as a
	// share of the time since it was ready.
	Busy      time.Duration `json:"busy_ns"`
	BusyShare float64       `json:"busy_share"`
	Rate      float64       `json:"records_per_second"`
	// Restarts are kernel processes started after a death, Retries batches that
	// were computed again, Lost workers that had to be replaced.
	Restarts int64 `json:"restarts"`
	Retries  int64 `json:"retries"`
	Lost     int64 `json:"lost"`
	Retired  bool  `json:"retired"`

	ready time.Time
	alive time.Duration
}

// FailureReport is the failed records of one kind.
type FailureReport struct {
	Kind    string `json:"kind"`
	Count   int64  `json:"count"`
	Example string `json:"example"`
	Line    int64  `json:"line"`
	Detail  string `json:"detail,omitempty"`
}

func (r *Report) addCounts(c chunk.Counts) {
	r.Succeeded += c.Succeeded
	r.Failed += c.Failed
	r.Dropped += c.Dropped
}

func (r *Report) addStats(slot int, c chunk.Counts, stats wire.Stats) {
	w := &r.Workers[slot]
	w.Records += c.Records
	w.Chunks++
	w.Batches += stats.Batches
	w.Busy += stats.Busy
	w.Restarts += stats.Restarts
	w.Retries += stats.Retries
	for kind, k := range stats.Kinds {
		r.addFailure(FailureReport{Kind: kind, Count: k.Count, Example: k.Example, Line: k.Line, Detail: k.Detail})
	}
}

// addFailure keeps the example that comes first in the input, so that a report
// does not depend on which worker was faster.
func (r *Report) addFailure(f FailureReport) {
	i := slices.IndexFunc(r.Failures, func(known FailureReport) bool { return known.Kind == f.Kind })
	if i < 0 {
		r.Failures = append(r.Failures, f)
		return
	}
	known := &r.Failures[i]
	known.Count += f.Count
	if f.Line < known.Line {
		known.Example, known.Line, known.Detail = f.Example, f.Line, f.Detail
	}
}

// close works out what follows from the rest.
func (r *Report) close(now time.Time) {
	r.Elapsed = now.Sub(r.Started)
	done := r.Succeeded + r.Failed + r.Dropped
	r.Pending = r.In - done
	r.Rate = rate(done, r.Elapsed)
	for i := range r.Workers {
		w := &r.Workers[i]
		if !w.ready.IsZero() {
			w.alive += now.Sub(w.ready)
			w.ready = time.Time{}
		}
		w.Rate = rate(w.Records, w.alive)
		if w.alive > 0 {
			w.BusyShare = min(1, w.Busy.Seconds()/w.alive.Seconds())
		}
	}
	sort.SliceStable(r.Failures, func(i, j int) bool { return r.Failures[i].Count > r.Failures[j].Count })
}

func rate(records int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}

// WriteFile writes the report as JSON.
func (r Report) WriteFile(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o666)
}
