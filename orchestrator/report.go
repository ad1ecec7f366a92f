package orchestrator

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// Report is what became of a job. For every way in which a job can end,
// In = Succeeded + Failed + Dropped + Pending.
type Report struct {
	Input  string `json:"input"`
	Output string `json:"output"`
	Errors string `json:"errors,omitempty"`
	// Streamed: the output went to standard output, a pipe or a device, which keep nothing.
	Streamed bool          `json:"streamed,omitempty"`
	Kernel   string        `json:"kernel"`
	Started  time.Time     `json:"started"`
	Elapsed  time.Duration `json:"elapsed_ns"`

	In        int64 `json:"in"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
	// Pending records were not computed: 0 unless the job stopped early.
	Pending int64 `json:"pending"`
	// Uncounted: the job stopped before its input was counted to the end, a stream
	// or a file that is counted while it runs. There are more records than In, and
	// all of those are pending too.
	Uncounted bool `json:"uncounted,omitempty"`
	// Resumed records were done by an earlier run of the job.
	Resumed int64 `json:"resumed"`
	// Retried records had failed, and were computed again by the last retry.
	Retried int64 `json:"retried"`
	// OutputBytes is the size of the output, OutputCRC32C its checksum; nil where it is not
	// known: in reports of earlier versions.
	OutputBytes  int64      `json:"output_bytes"`
	OutputCRC32C *chunk.CRC `json:"output_crc32c,omitempty"`
	// Blank lines were skipped; they are no records.
	Blank int64 `json:"blank_lines"`

	// Nulls are numbers, NaN and infinity, that became null; of this run.
	Nulls int64 `json:"null_numbers"`

	BatchSize int     `json:"batch_size"`
	Rate      float64 `json:"records_per_second"`
	// Workers are the slots.
	Workers []WorkerReport `json:"workers"`
	// Devices are the GPUs that were monitored.
	Devices []DeviceReport `json:"devices,omitempty"`
	// Recommendations follow from the figures.
	Recommendations []string `json:"recommendations,omitempty"`
	// Failures are the failed records by kind, most first.
	Failures []FailureReport `json:"failures,omitempty"`
	// Causes are the failed records by kind and message, most first. Messages that
	// differ only in numbers and quoted texts are one cause; rare ones may be missing.
	Causes []FailureReport `json:"causes,omitempty"`
	// Folder is the job folder, with logs and failures.jsonl.
	Folder string `json:"folder,omitempty"`
	// Stop is why the job stopped early; nil if it did not.
	Stop *fault.Error `json:"stop,omitempty"`
	// Resume is what the same command does then; empty if the job did not stop early.
	Resume Resumption `json:"resume,omitempty"`
	// Unresumable is why, of a job that never resumes.
	Unresumable string `json:"unresumable,omitempty"`
}

// WorkerReport is one slot's share.
type WorkerReport struct {
	Slot    int    `json:"slot"`
	Device  string `json:"device"`
	Records int64  `json:"records"`
	Chunks  int64  `json:"chunks"`
	Batches int64  `json:"batches"`
	// BatchSize is the best that --batch-size auto found, 0 if it found none.
	BatchSize int `json:"best_batch_size,omitempty"`
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

// FailureReport is the failed records of one kind, or of one cause.
type FailureReport struct {
	Kind    string `json:"kind"`
	Count   int64  `json:"count"`
	Example string `json:"example"`
	Line    int64  `json:"line"`
	Detail  string `json:"detail,omitempty"`
}

// addStats books what a segment cost its worker.
func (r *Report) addStats(slot int, c chunk.Counts, stats wire.Stats) {
	w := &r.Workers[slot]
	w.Records += c.Records
	w.Chunks++
	w.Batches += stats.Batches
	w.Busy += stats.Busy
	w.Restarts += stats.Restarts
	w.Retries += stats.Retries
	r.Nulls += stats.Nulls
	w.BatchSize = max(w.BatchSize, stats.BatchSize)
}

// close works out what follows from the rest, and from what is done.
func (r *Report) close(now time.Time, done chunk.Tally) {
	r.Elapsed = now.Sub(r.Started)
	r.Succeeded, r.Failed, r.Dropped = done.Succeeded, done.Failed, done.Dropped
	r.Pending = r.In - done.Records
	r.Rate = rate(done.Records-r.Resumed, r.Elapsed)
	r.Failures, r.Causes = failureReports(done.Kinds), failureReports(done.Causes)
	if r.Workers == nil {
		r.Workers = []WorkerReport{} // never null in JSON
	}
	for i := range r.Workers {
		r.Workers[i].close(now)
	}
}

// failureReports lists what is known of failed records by "kind" or "kind: cause".
func failureReports(by map[string]chunk.KindStats) (list []FailureReport) {
	for name, k := range by {
		kind, _, _ := strings.Cut(name, ":")
		list = append(list, FailureReport{Kind: kind, Count: k.Count, Example: k.Example, Line: k.Line, Detail: k.Detail})
	}
	slices.SortFunc(list, func(a, b FailureReport) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Line, b.Line))
	})
	return list
}

// speed is records a second of computing, 0 while it is not known.
func (w *WorkerReport) speed() float64 { return rate(w.Records, w.Busy) }

func (w *WorkerReport) close(now time.Time) {
	if !w.ready.IsZero() {
		w.alive += now.Sub(w.ready)
		w.ready = time.Time{}
	}
	w.Rate = rate(w.Records, w.alive)
	if w.alive > 0 {
		w.BusyShare = min(1, w.Busy.Seconds()/w.alive.Seconds())
	}
}

func rate(records int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}

// WriteFile writes the report as JSON.
func (r Report) WriteFile(path string) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

// writeDurably writes the report of a job that is over: retry and report believe it.
func (r Report) writeDurably(path string) error {
	data, err := r.encode()
	if err == nil {
		err = chunk.WriteDurably(path, data, chunk.PrivateMode)
	}
	if err != nil {
		return fault.New(fault.Storage, "write report: %w", err)
	}
	return nil
}

func (r Report) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}
