package worker

import (
	"sync"
	"time"
)

const (
	// windowBatches is how many batches a window holds at most. With that many, batches of
	// natural texts are padded by about a tenth; more would gain little.
	windowBatches = 16
	// windowTime is how long computing a window may take: a stop loses what is computed of
	// it behind the first record that is not.
	windowTime = 10 * time.Second
	// lastWindowTime is the same at the end of the job, when other workers may wait for it.
	lastWindowTime = time.Second
	// windowShare is how many times --batch-bytes a window may hold.
	windowShare = 2
)

// windowSizes decides how many records the next window holds (--group-by). Until the first
// one is measured, windows are single batches: a kernel that fails on everything, or takes
// minutes for a batch, is then noticed as soon as without windows.
type windowSizes struct {
	mu   sync.Mutex
	rate float64 // records per second
}

// batches returns the size in batches of the given number of records.
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
	return max(1, min(most, int(min(w.rate*limit.Seconds()/float64(size), windowBatches))))
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
