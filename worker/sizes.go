package worker

import "sync"

// batchSizes is how many records the next batch gets: as many as wanted, until
// the device's memory says otherwise. After that it is remembered what went in,
// and tried a little more now and then: neighbours come and go.
type batchSizes struct {
	mu    sync.Mutex
	want  int
	limit int // 0: none
	since int // good batches since the last change
}

// growAfter good batches the limit is raised by an eighth.
const growAfter = 64

func (b *batchSizes) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit > 0 {
		return b.limit
	}
	return b.want
}

// shrink notes that a batch of n records did not fit.
func (b *batchSizes) shrink(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if half := max(1, n/2); b.limit == 0 || half < b.limit {
		b.limit = half
	}
	b.since = 0
}

// good notes a batch that fitted.
func (b *batchSizes) good() {
	b.mu.Lock()
	defer b.mu.Unlock()
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
