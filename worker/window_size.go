package worker

import (
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

const (
	windowBatches = wire.WindowBatches
	// windowTime is how long computing a window may take: a stop loses what is computed of
	// it behind the first record that is not.
	windowTime = 10 * time.Second
	// lastWindowTime is the same at the end of the job, when other workers may wait for it.
	lastWindowTime = time.Second
	// maxUnsure is how many batches a window holds while nothing is known about their speed.
	maxUnsure = 4
	// windowShare is how many times --batch-bytes a window may hold.
	windowShare = 2
)

// windowSizes decides how many records the next window holds (--group-by). The first one
// is a single batch: a kernel that fails on everything is then noticed as soon as without
// windows. The next ones, until one is measured, are small.
type windowSizes struct {
	mu     sync.Mutex
	rate   float64 // records per second; 0 if unknown
	unsure int     // the size of the next window while it is
	turns  int     // windows so far
}

// turn reports whether the next window begins with its smallest records: every other one.
func (w *windowSizes) turn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns++
	return w.turns%2 == 0
}

// batches returns the size of the next window in batches of the given number of records.
func (w *windowSizes) batches(size int, tuning, draining bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := windowTime
	if draining {
		limit = lastWindowTime
	}
	most := windowBatches
	if tuning { // one trial of a batch size
		most = tuneBatches
	}
	if w.rate == 0 {
		w.unsure = min(max(1, 2*w.unsure), maxUnsure)
		return min(most, w.unsure)
	}
	return max(1, min(most, int(min(w.rate*limit.Seconds()/float64(size), windowBatches))))
}

// evenly returns the size of the next window, at most n batches, given how many batches of
// the chunk remain: the last two windows are of equal size.
func evenly(n, remaining int) int {
	if n < remaining && remaining < 2*n {
		return (remaining + 1) / 2
	}
	return n
}

// done records how long a window took to compute.
func (w *windowSizes) done(records int, took time.Duration) {
	if records == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rate := float64(records) / max(took, time.Microsecond).Seconds()
	if w.rate > 0 {
		rate = (rate + w.rate) / 2
	}
	w.rate = rate
}
