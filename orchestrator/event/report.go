package event

import (
	"time"

	"github.com/gpurun/gpurun/internal/histogram"
	"github.com/gpurun/gpurun/internal/wire"
)

// WorkerReport is one slot's share of the job.
type WorkerReport struct {
	Slot    int    `json:"slot"`
	Device  string `json:"device"`
	Records int64  `json:"records"`
	Chunks  int64  `json:"chunks"`
	Batches int64  `json:"batches"`
	// BatchSize is the best that AutoBatch found, 0 if it found none.
	BatchSize int `json:"best_batch_size,omitempty"`
	// Busy is how long the slot's kernel was computing; BusyShare is that as a share of
	// the time since it was ready.
	Busy time.Duration `json:"busy_ns"`
	// Load is how long the slot's kernels took to open. CPU is the CPU time of all its
	// processes. WaitedInput and WaitedOutput are how long its kernel had no work for want
	// of records, and because results were not written yet.
	Load         time.Duration `json:"load_ns"`
	CPU          time.Duration `json:"cpu_ns"`
	WaitedInput  time.Duration `json:"waited_input_ns"`
	WaitedOutput time.Duration `json:"waited_output_ns"`
	BusyShare    float64       `json:"busy_share"`
	// Start is how the slot's first kernel started.
	Start wire.Start `json:"start,omitzero"`
	Rate  float64    `json:"records_per_second"`
	// Restarts counts kernel processes started after one died, Retries batches that
	// were computed again, Lost workers that had to be replaced.
	Restarts int64 `json:"restarts"`
	Retries  int64 `json:"retries"`
	Lost     int64 `json:"lost"`
	Retired  bool  `json:"retired"`

	// Alive is how long its kernels were open.
	Alive time.Duration `json:"-"`
	// Ready is when its open kernel was; zero if none is. Opened is when its first one was.
	Ready  time.Time `json:"-"`
	Opened time.Time `json:"-"`
}

// SickDevice is a device that was retired because records failed on it that succeed on
// another one.
type SickDevice struct {
	Device string `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	// Records is how many had failed on it, and Message why one of them did.
	Records int64  `json:"records"`
	Message string `json:"message"`
}

// Rest ends a time during which the slot's kernel was open.
func (w *WorkerReport) Rest(now time.Time) {
	if !w.Ready.IsZero() {
		w.Alive += now.Sub(w.Ready)
		w.Ready = time.Time{}
	}
}

// Close computes the derived figures.
func (w *WorkerReport) Close(now time.Time) {
	w.Rest(now)
	w.Rate = Rate(w.Records, w.Alive)
	if w.Alive > 0 {
		w.BusyShare = min(1, w.Busy.Seconds()/w.Alive.Seconds())
	}
}

// Rate returns records per second, 0 for no time.
func Rate(records int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(records) / d.Seconds()
}

// SegmentStats is what the records of a ChunkDone took.
type SegmentStats struct {
	Batches int64 `json:"batches"`
	// Busy is how long the kernel was computing.
	Busy time.Duration `json:"busy_ns"`
	// Restarts counts kernel processes started after one died, Retries batches that were
	// computed again, Nulls numbers that became null.
	Restarts int64 `json:"restarts"`
	Retries  int64 `json:"retries"`
	Nulls    int64 `json:"null_numbers"`
	// Figures are further counts by name, such as fetched files.
	Figures map[string]float64 `json:"figures,omitempty"`
	// Latency is the latency of the batches since the last Progress; nil for none.
	Latency *histogram.Histogram `json:"-"`
}

// NewSegmentStats returns the statistics of a chunk.
func NewSegmentStats(s wire.Stats) SegmentStats {
	return SegmentStats{
		Batches: s.Batches, Busy: s.Busy, Restarts: s.Restarts, Retries: s.Retries, Nulls: s.Nulls,
		Figures: s.Figures, Latency: s.Latency,
	}
}
