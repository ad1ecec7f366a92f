package worker

import (
	"sync"
)

// batchSizes decides how many records the next batch gets: the requested number, until the
// device runs out of memory. It then remembers the size that fit and grows it a little from
// time to time, because other users of the device come and go. When records are grouped, the cost
// of a batch, padding included, shrinks instead of the number of its records, because a batch of
// long records says nothing about one of short ones.
type batchSizes struct {
	mu      sync.Mutex
	records memoryLimit
	cost    memoryLimit // its want is --batch-cost
	auto    *tuner      // nil unless the size is tuned automatically
	grown   *growth     // nil unless batches have a cost of their own
}

// memoryLimit limits batches to what fits in memory.
type memoryLimit struct {
	want   int64 // 0: no limit
	limit  int64 // what fit; 0: nothing has failed
	failed int64 // the most that did not fit
	since  int   // good batches near the limit since its last change
}

// growAfter good batches, the limit is raised by an eighth.
const growAfter = 64

// size returns the limit of the next batch, 0 if there is none.
func (m *memoryLimit) size() int64 {
	if m.limit > 0 {
		return m.limit
	}
	return m.want
}

// shrink records that a batch did not fit.
func (m *memoryLimit) shrink(n int64) {
	if half := max(1, n/2); m.limit == 0 || half < m.limit {
		m.limit = half
	}
	m.failed, m.since = max(m.failed, n), 0
}

// good records that a batch fit. A small one says nothing about the limit.
func (m *memoryLimit) good(n int64) {
	if m.limit == 0 || 2*n < m.limit {
		return
	}
	if m.since++; m.since < growAfter {
		return
	}
	m.since = 0
	if m.limit += max(1, m.limit/8); m.limit >= m.failed || m.want > 0 && m.limit >= m.want {
		m.limit, m.failed = 0, 0
	}
}

func (b *batchSizes) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.records.limit > 0:
	case b.auto != nil:
		return b.auto.size
	case b.grown != nil:
		return b.grown.size
	}
	return int(b.records.size())
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
	return budget{records, bytes, b.cost.size()}
}

// tuning reports whether sizes are still being tried.
func (b *batchSizes) tuning() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.auto != nil && !b.auto.done
}

// shrink records that a batch did not fit.
func (b *batchSizes) shrink(of load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if of.cost > 0 {
		b.cost.shrink(of.cost)
		if b.auto != nil && !b.auto.done {
			b.auto.finish()
		}
		return
	}
	b.records.shrink(int64(of.records))
	if b.auto != nil {
		b.auto.full(of.records)
		if b.records.want = int64(b.auto.size); b.records.limit >= b.records.want {
			b.records.limit = 0
		}
	}
}

// good records that a batch fit.
func (b *batchSizes) good(of load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cost.good(of.cost)
	if of.cost == 0 {
		b.records.good(int64(of.records))
	}
}

// goodGroup records a group with batches that were computed at the first attempt.
func (b *batchSizes) goodGroup(of trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.auto != nil {
		b.auto.good(of)
	}
	if b.grown != nil && of.batches == 1 {
		b.grown.good(of.records, of.took)
	}
}
