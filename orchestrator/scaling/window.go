package scaling

import (
	"math"
	"time"
)

const (
	// warmUp and warmBatches per worker pass before rates count: frameworks compile and
	// cache during the first batches.
	warmUp      = 2 * time.Second
	warmBatches = 1
	// A window has at least this length and this many batches per worker.
	windowLeast   = 4 * time.Second
	windowBatches = 4
	// windowClear and half the batches suffice if the gain is at least clearGain.
	windowClear = 2 * time.Second
	clearGain   = 6 * keepGain
	// windowClose is needed if the gain is close to keepGain.
	windowClose = 10 * time.Second
)

// rate is what a device computes per second. Records alone would mislead when they
// become longer, bytes alone when they become shorter.
type rate struct{ records, bytes float64 }

// gain returns by which share b is faster than a.
func (a rate) gain(b rate) float64 {
	if a.records <= 0 || b.records <= 0 {
		return 0
	}
	factor := b.records / a.records
	if a.bytes > 0 && b.bytes > 0 {
		factor = math.Sqrt(factor * b.bytes / a.bytes)
	}
	return factor - 1
}

// size returns the bytes of a record.
func (a rate) size() float64 { return a.bytes / max(a.records, 1e-9) }

// window measures a rate. It begins again when the number of workers changes.
type window struct {
	workers int
	since   Figures // when all workers were there
	from    Figures // after the warm-up
	warm    bool
	points  []Figures // from the first to the last
}

func (w *window) reset() { *w = window{} }

// add takes figures and returns the rate once it is known. A rate that is clearly above
// base is known sooner.
func (w *window) add(f Figures, base rate) (rate, bool) {
	if f.Unsteady || f.Loading > 0 || f.Workers == 0 {
		w.reset()
		return rate{}, false
	}
	if w.workers != f.Workers {
		*w = window{workers: f.Workers, since: f}
	}
	if !w.warm {
		if f.Time-w.since.Time < warmUp || f.Batches-w.since.Batches < int64(warmBatches*f.Workers) {
			return rate{}, false
		}
		w.warm, w.from, w.points = true, f, []Figures{f}
		return rate{}, false
	}
	w.points = append(w.points, f)
	length, measured := f.Time-w.from.Time, between(w.from, f)
	switch {
	case f.Batches-w.from.Batches < int64(windowBatches/2*f.Workers), length < windowClear:
		return rate{}, false
	case base.gain(measured) >= clearGain:
		return measured, true
	case f.Batches-w.from.Batches < int64(windowBatches*f.Workers):
		return rate{}, false
	case length < windowClose && math.Abs(base.gain(measured)-keepGain) < keepGain && base != (rate{}):
		return rate{}, false
	}
	return measured, length >= windowLeast
}

// average returns the last figures with those that vary averaged over the window.
func (w *window) average() Figures {
	last := w.points[len(w.points)-1]
	if last.GPUBusy >= 0 {
		last.GPUBusy = w.mean(func(f Figures) float64 { return f.GPUBusy })
	}
	if last.IdleCores >= 0 {
		last.IdleCores = w.mean(func(f Figures) float64 { return f.IdleCores })
	}
	last.Runnable = w.mean(func(f Figures) float64 { return f.Runnable })
	last.fed = min(1, (last.Busy-w.from.Busy).Seconds()/(last.Time-w.from.Time).Seconds()/float64(last.Workers))
	return last
}

// mean returns the mean of a figure, leaving out the first: it is about the time before
// the window.
func (w *window) mean(figure func(Figures) float64) float64 {
	sum := 0.0
	for _, f := range w.points[1:] {
		sum += figure(f)
	}
	return sum / float64(len(w.points)-1)
}

// next begins another window with the same workers, without a warm-up.
func (w *window) next(f Figures) { w.from, w.points = f, []Figures{f} }

func between(a, b Figures) rate {
	seconds := (b.Time - a.Time).Seconds()
	if seconds <= 0 {
		return rate{}
	}
	return rate{float64(b.Records-a.Records) / seconds, float64(b.Bytes-a.Bytes) / seconds}
}
