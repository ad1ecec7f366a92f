package scaling

import (
	"math"
	"time"
)

const (
	// warmUp and warmBatches per worker pass before rates count: frameworks compile and
	// cache during the first batches.
	warmUp      = 500 * time.Millisecond
	warmBatches = 1
	// A window has at least this length and this many batches per worker. It ends when its rate
	// is certain enough, or after windowMost with twice the batches.
	windowLeast   = time.Second
	windowBatches = 2
	windowMost    = 10 * time.Second
	// leastNoise is the noise of a second that is assumed at least: a few intervals may agree by
	// chance.
	leastNoise = 0.03
)

// rate is what a device computes per second. Records alone would mislead when they
// become longer, bytes alone when they become shorter. err is the standard error, as a share.
type rate struct{ records, bytes, err float64 }

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

// exceeds reports whether b is certainly faster than a by this share, or certainly not.
func (a rate) exceeds(b rate, gain float64) (certain bool) {
	return math.Abs(a.gain(b)-gain) > certainty*(1+gain)*math.Hypot(a.err, b.err)
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

// add takes figures and returns the rate once it is known: when it is certain enough.
func (w *window) add(f Figures, enough func(Figures, rate) bool) (rate, bool) {
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
	length, batches := f.Time-w.from.Time, f.Batches-w.from.Batches
	if length < windowLeast || batches < int64(windowBatches*f.Workers) {
		return rate{}, false
	}
	measured := between(w.from, f)
	measured.err = w.err()
	return measured, length >= windowMost && batches >= int64(2*windowBatches*f.Workers) || enough(w.average(), measured)
}

// err returns the standard error of the window's rate, as a share: from the difference between its
// halves, and from the batches that the workers had begun at its ends, which add a sixth of a squared
// batch for each worker.
func (w *window) err() float64 {
	middle, last := w.points[len(w.points)/2], w.points[len(w.points)-1]
	batches, seconds := float64(last.Batches-w.from.Batches), (last.Time - w.from.Time).Seconds()
	begun := float64(w.workers) / 6 / batches / batches
	half := float64(middle.Batches-w.from.Batches)/batches - (middle.Time-w.from.Time).Seconds()/seconds
	return math.Sqrt(max(half*half-begun, leastNoise*leastNoise/seconds) + begun)
}

// average returns the last figures with those that vary averaged over the window.
func (w *window) average() Figures {
	last := w.points[len(w.points)-1]
	last.GPUBusy = w.mean(func(f Figures) float64 { return f.GPUBusy })
	last.IdleCores = w.mean(func(f Figures) float64 { return f.IdleCores })
	last.Runnable = w.mean(func(f Figures) float64 { return f.Runnable })
	last.fed = min(1, (last.Busy-w.from.Busy).Seconds()/(last.Time-w.from.Time).Seconds()/float64(last.Workers))
	return last
}

// mean returns the mean of a figure where it is known, leaving out the first: it is about the
// time before the window. It is negative if the figure is unknown.
func (w *window) mean(figure func(Figures) float64) float64 {
	sum, known := 0.0, 0.0
	for _, f := range w.points[1:] {
		if value := figure(f); value >= 0 {
			sum, known = sum+value, known+1
		}
	}
	if known == 0 {
		return -1
	}
	return sum / known
}

// next begins another window with the same workers, without a warm-up.
func (w *window) next(f Figures) { w.from, w.points = f, []Figures{f} }

func between(a, b Figures) rate {
	seconds := (b.Time - a.Time).Seconds()
	if seconds <= 0 {
		return rate{}
	}
	return rate{records: float64(b.Records-a.Records) / seconds, bytes: float64(b.Bytes-a.Bytes) / seconds}
}
