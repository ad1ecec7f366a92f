package server

import (
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/view"
)

// Reading is what is known about a GPU at one moment. Figures that the card does not
// report are null, never 0.
type Reading struct {
	Time        time.Time `json:"timestamp"`
	ID          gpuID     `json:"gpu_id"`
	UUID        string    `json:"uuid"`
	Name        string    `json:"gpu_name"`
	Load        *float64  `json:"load_percent"`
	MemoryUsed  *float64  `json:"memory_used_mb"`
	MemoryTotal *float64  `json:"memory_total_mb"`
	MemoryShare *float64  `json:"memory_percent"`
	Temperature *float64  `json:"temperature_celsius"`
	Power       *float64  `json:"power_watts"`
	State       string    `json:"state"`
	Problem     string    `json:"problem,omitempty"`

	// pace is the share of time in which the GPU may compute; slowdown is the temperature
	// at which it slows itself down.
	pace     float64
	slowdown gpu.Optional[int]
}

// same reports whether both are of one GPU. A GPU may fail to report its UUID.
func (r Reading) same(other Reading) bool {
	return r.ID == other.ID && (r.UUID == other.UUID || r.UUID == "" || other.UUID == "")
}

// newReading returns the figures of a sample.
func newReading(at time.Time, s gpu.Sample) Reading {
	r := Reading{Time: at, Load: view.Number(s.Utilization), Temperature: view.Number(s.Temperature), Power: view.Number(s.Power), slowdown: s.Slowdown}
	if m, known := s.Memory.Get(); known && m.Total > 0 {
		used, total := megabytes(m.Used), megabytes(m.Total)
		share := 100 * used / total
		r.MemoryUsed, r.MemoryTotal, r.MemoryShare = &used, &total, &share
	}
	return r
}

// megabytes converts to the MiB that the documents call MB.
func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// book keeps the readings of GPUs: the last of each always, earlier ones while recording.
type book struct {
	mu   sync.Mutex
	gpus []*pages
	// off: history is not recorded.
	off bool
	// recent is how many readings are kept as they come; beyond those, one per interval is
	// kept for the retention.
	recent              int
	interval, retention time.Duration
}

// pages are the readings of one GPU, oldest first, and the last one, which may not be recorded.
type pages struct {
	last Reading
	all  []Reading
}

// add adds a reading.
func (b *book) add(r Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.gpus, func(p *pages) bool { return p.last.same(r) })
	if i < 0 {
		i = len(b.gpus)
		b.gpus = append(b.gpus, &pages{})
	}
	p := b.gpus[i]
	p.last = r
	if b.off {
		return
	}
	p.all = append(p.all, r)
	if i := len(p.all) - 1 - b.recent; i > 0 && p.all[i].Time.Sub(p.all[i-1].Time) < b.interval {
		p.all = slices.Delete(p.all, i, i+1) // it is no longer recent, and the one before is close
	}
	for len(p.all) > b.recent && r.Time.Sub(p.all[0].Time) > b.retention {
		p.all = slices.Delete(p.all, 0, 1)
	}
}

// forget removes GPUs that no longer exist.
func (b *book) forget(exists func(Reading) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gpus = slices.DeleteFunc(b.gpus, func(p *pages) bool { return !exists(p.last) })
}

// all returns the last reading of each GPU.
func (b *book) all() []Reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Reading, len(b.gpus))
	for i, p := range b.gpus {
		list[i] = p.last
	}
	return list
}

// history returns the readings of the GPUs that match, oldest first.
func (b *book) history(match func(Reading) bool) []Reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Reading{}
	for _, p := range b.gpus {
		if match(p.last) {
			list = append(list, p.all...)
		}
	}
	slices.SortStableFunc(list, func(a, b Reading) int { return a.Time.Compare(b.Time) })
	return list
}

// resize sets how many recent readings are kept.
func (b *book) resize(recent int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = recent
}

// record turns the history on or off.
func (b *book) record(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.off = !on
}
