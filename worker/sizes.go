package worker

import (
	"sync"
	"time"
)

// batchSizes decides how many records the next batch gets: the requested number, until the
// device runs out of memory. It then remembers the size that fit and grows it a little from
// time to time, because other users of the device come and go.
type batchSizes struct {
	mu    sync.Mutex
	want  int
	limit int     // 0: none
	since int     // good batches since the last change
	auto  *tuner  // nil unless the size is tuned automatically
	grown *growth // nil unless batches have a cost of their own
	cost  costLimit
}

// growAfter good batches, the limit is raised by an eighth.
const growAfter = 64

func (b *batchSizes) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit > 0 {
		return b.limit
	}
	if b.auto != nil {
		return b.auto.size
	}
	if b.grown != nil {
		return b.grown.size
	}
	return b.want
}

// within returns the size of the next batch of a chunk of which so many records remain. Where
// batches have a cost of their own, the last one of a chunk is not a small one.
func (b *batchSizes) within(remaining int64) int {
	size := b.size()
	if b.grown == nil || remaining <= int64(size) {
		return size
	}
	batches := (remaining + int64(size)/2) / int64(size)
	return int((remaining + batches - 1) / batches)
}

// growing reports whether the next batches may be much larger.
func (b *batchSizes) growing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grown != nil && !b.grown.settled
}

// found returns the best size found, or the best so far if sizes are still being tried: a
// job may finish earlier. It is 0 if no size was judged.
func (b *batchSizes) found() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.auto == nil:
		return 0
	case b.auto.done:
		return b.auto.size
	}
	return b.auto.best.size
}

// budget returns the limits of the next batch of a window.
func (b *batchSizes) budget(bytes int) budget {
	records := b.size()
	b.mu.Lock()
	defer b.mu.Unlock()
	return budget{records, bytes, b.cost.cost()}
}

// tuning reports whether sizes are still being tried.
func (b *batchSizes) tuning() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.auto != nil && !b.auto.done
}

// shrinkCost records that a batch of a window did not fit.
func (b *batchSizes) shrinkCost(cost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cost.shrink(cost)
	if b.auto != nil && !b.auto.done {
		b.auto.settle()
	}
}

// goodCost records that a batch of a window fit.
func (b *batchSizes) goodCost(cost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cost.good(cost)
}

// goodWindow records a window of good batches.
func (b *batchSizes) goodWindow(of trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.auto != nil {
		b.auto.good(of)
	}
}

// shrink records that a batch of n records did not fit.
func (b *batchSizes) shrink(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if half := max(1, n/2); b.limit == 0 || half < b.limit {
		b.limit = half
	}
	b.since = 0
	if b.auto != nil {
		b.auto.full(n)
		b.want = b.auto.size
		if b.limit >= b.want {
			b.limit = 0
		}
	}
}

// good records that a batch of n records fit, and how long it took.
func (b *batchSizes) good(n int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.auto != nil {
		b.auto.good(trial{n, 1, n, took})
	}
	if b.grown != nil {
		b.grown.good(n, took)
	}
	if b.limit == 0 {
		return
	}
	if b.since++; b.since < growAfter {
		return
	}
	b.since = 0
	if b.limit += max(1, b.limit/8); b.limit >= b.want {
		b.limit = 0
	}
}
