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
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/folder"
)

// Report is the result of a job. However the job ends, In = Succeeded + Failed +
// Dropped + Pending.
type Report struct {
	Input  string `json:"input"`
	Output string `json:"output"`
	Errors string `json:"errors,omitempty"`
	// Streamed: the output went to standard output, a pipe or a device, which keep
	// nothing.
	Streamed bool `json:"streamed,omitempty"`
	// Format is the format of the lines if they are not any JSON: [OpenAIBatch].
	Format  string        `json:"format,omitempty"`
	Kernel  string        `json:"kernel"`
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed_ns"`

	In        int64 `json:"in"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Dropped   int64 `json:"dropped"`
	// Pending records were not computed: 0 unless the job stopped early.
	Pending int64 `json:"pending"`
	// Uncounted: the job stopped before its input, a stream or a file that is counted
	// while the job runs, was counted to the end. There are more records than In, and
	// those are pending too.
	Uncounted bool `json:"uncounted,omitempty"`
	// Resumed records were done by earlier runs of the job.
	Resumed int64 `json:"resumed"`
	// Answers of the pending records are logged: the next run does not compute those again.
	// ResumedAnswers were logged by earlier runs, in addition to Resumed.
	Answers        int64 `json:"answers,omitempty"`
	ResumedAnswers int64 `json:"resumed_answers,omitempty"`
	// Computed records, or their logged answers, are the work of this run, or of the last
	// one of a finished job.
	Computed int64 `json:"computed,omitempty"`
	// Retried records had failed and were computed again by the last retry.
	Retried int64 `json:"retried"`
	// OutputBytes is the size of the output and OutputCRC32C its checksum; nil for a job
	// that is not finished, and for parts that a retry has written.
	OutputBytes  int64      `json:"output_bytes"`
	OutputCRC32C *chunk.CRC `json:"output_crc32c,omitempty"`
	// Unencoded is the size of a compressed output before it was compressed.
	Unencoded int64 `json:"output_unencoded_bytes,omitempty"`
	// Arrays are the files of columns beside the output.
	Arrays []ArrayReport `json:"arrays,omitempty"`
	// Blank lines were skipped; they do not count as records.
	Blank int64 `json:"blank_lines"`

	// SkippedInputs are the files of which a part could not be read.
	SkippedInputs []SkippedInput `json:"skipped_inputs,omitempty"`

	// Nulls counts numbers, NaN and infinity, that became null in this run.
	Nulls int64 `json:"null_numbers"`
	// Usage is what kernels have counted in all runs of the job, by name: requests,
	// prompt_tokens, completion_tokens, total_tokens and others. TokenRate is how many
	// tokens were generated per second in this run, or how many were used if none were
	// generated.
	Usage     map[string]int64 `json:"usage,omitempty"`
	TokenRate float64          `json:"tokens_per_second,omitempty"`

	BatchSize int `json:"batch_size"`
	// Load is the time until the first kernel was open. Rate leaves it out.
	Load time.Duration `json:"load_ns"`
	Rate float64       `json:"records_per_second"`
	// Start is how the workers of this run started; nil if none did, or if that is not known.
	Start *StartReport `json:"start,omitempty"`
	// Concurrency is how many records each kernel computed at a time, 0 if it computed
	// batches. Unit is what it computed, "batches" or "records"; Latency is how long one took.
	Concurrency int    `json:"concurrency,omitempty"`
	Unit        string `json:"unit"`
	// GroupBy is the member by whose size records were grouped, empty if they were not.
	// Padding is the share of the batches' size that padding took in this run: each record
	// is padded to the largest of its batch.
	GroupBy string  `json:"group_by,omitempty"`
	Padding float64 `json:"padding_share,omitempty"`
	// Latency is how long this run's batches took; nil if there were none.
	Latency *Latency `json:"batch_latency,omitempty"`
	// Workers are the slots.
	Workers []WorkerReport `json:"workers"`
	// Sick are the devices that were retired because records failed on them that succeed on
	// others.
	Sick []SickDevice `json:"sick_devices,omitempty"`
	// Scaling is how many workers each device got, if gpurun chose that.
	Scaling []ScalingReport `json:"scaling,omitempty"`
	// Devices are the GPUs that were monitored.
	Devices []DeviceReport `json:"devices,omitempty"`
	// Bottleneck is what limited the job's speed; nil if it was too short to tell.
	Bottleneck *Bottleneck `json:"bottleneck,omitempty"`
	// Recommendations are derived from the figures.
	Recommendations []Recommendation `json:"recommendations,omitempty"`
	// Failures are the failed records by kind, most frequent first.
	Failures []FailureReport `json:"failures,omitempty"`
	// Causes are the failed records by kind and message, most frequent first. Messages
	// that differ only in numbers and quoted texts count as one cause; rare ones may be
	// missing.
	Causes []FailureReport `json:"causes,omitempty"`
	// Folder is the job folder, with logs and failures.jsonl.
	Folder string `json:"folder,omitempty"`
	// Stop is why the job stopped early; nil if it did not.
	Stop *fault.Error `json:"stop,omitempty"`
	// Resume is what running the same command does after an early stop; empty if the
	// job did not stop early.
	Resume Resumption `json:"resume,omitempty"`
	// Unresumable is why the job can never resume.
	Unresumable string `json:"unresumable,omitempty"`
}

// ArrayReport is a file with a column beside the output, or its mask.
type ArrayReport struct {
	Path   string    `json:"path"`
	Bytes  int64     `json:"bytes"`
	CRC32C chunk.CRC `json:"crc32c"`
}

// FailureReport is the failed records of one kind or one cause.
type FailureReport struct {
	Kind string `json:"kind"`
	chunk.KindStats
}

// report returns what the settings say about a job with this folder.
func (o *order) report(f *folder.Folder) Report {
	return Report{
		Input: o.Input.Path, Output: o.Output.Path, Errors: o.Output.Errors, Streamed: o.Results.Streamed(), Format: o.Format,
		Kernel: o.Kernel.Name, Folder: f.Path,
	}
}

// close computes the derived figures.
func (r *Report) close(now time.Time, done chunk.Tally) {
	r.Elapsed = now.Sub(r.Started)
	r.Succeeded, r.Failed, r.Dropped = done.Succeeded, done.Failed, done.Dropped
	r.Pending = r.In - done.Records
	r.Computed = max(0, done.Records+r.Answers-r.Resumed-r.ResumedAnswers)
	r.Rate = event.Rate(r.Computed, r.Elapsed-r.Load)
	r.Failures, r.Causes = FailureReports(done.Kinds), FailureReports(done.Causes)
	if r.Workers == nil {
		r.Workers = []WorkerReport{} // never null in JSON
	}
}

// FailureReports lists failed records by "kind" or "kind: cause", most frequent first.
func FailureReports(by map[string]chunk.KindStats) (list []FailureReport) {
	for name, k := range by {
		kind, _, _ := strings.Cut(name, ":")
		list = append(list, FailureReport{kind, k})
	}
	slices.SortFunc(list, func(a, b FailureReport) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Line, b.Line))
	})
	return list
}

// WriteFile writes the report as JSON.
func (r Report) WriteFile(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), files.PublicMode)
}

// Save writes the report of an ended job durably: a retry relies on it.
func (r Report) Save(path string) error {
	if err := files.WriteJSON(path, r, files.PrivateMode); err != nil {
		return fault.JobFiles.New("write report: %w", err)
	}
	return nil
}

// Histogram counts durations in buckets of growing size.
type Histogram = histogram.Histogram

// Latency describes how long batches took on their devices.
type Latency struct {
	Batches int64         `json:"batches"`
	Mean    time.Duration `json:"mean_ns"`
	P50     time.Duration `json:"p50_ns"`
	P90     time.Duration `json:"p90_ns"`
	P99     time.Duration `json:"p99_ns"`
	Max     time.Duration `json:"max_ns"`
}

// Summarize returns the percentiles of a histogram, exact to a fifth; nil if it is empty.
func Summarize(h Histogram) *Latency {
	n := h.Count()
	if n == 0 {
		return nil
	}
	return &Latency{
		Batches: n, Mean: h.Sum / time.Duration(n),
		P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), Max: h.Max,
	}
}
