package worker

import "testing"

// TestBatchSizes: the size is halved when memory is full, and grows back slowly.
func TestBatchSizes(t *testing.T) {
	b := batchSizes{records: memoryLimit{want: 128}}
	check := func(want int) {
		t.Helper()
		if got := b.size(); got != want {
			t.Errorf("size %d, want %d", got, want)
		}
	}
	check(128)
	b.shrink(load{records: 128})
	check(64)
	b.shrink(load{records: 64})
	b.shrink(load{records: 32})
	check(16)
	b.shrink(load{records: 100}) // a late report on an older, larger batch
	check(16)
	for range growAfter {
		check(16)
		b.good(load{records: b.size()})
	}
	check(18)
	for range 100 * growAfter {
		b.good(load{records: b.size()})
	}
	check(128)
	b.shrink(load{records: 1})
	check(1)
}

func TestMemoryLimit(t *testing.T) {
	c := memoryLimit{want: 1000}
	if c.good(900); c.size() != 1000 {
		t.Errorf("before any failure: %d", c.size())
	}
	if c.shrink(800); c.size() != 400 {
		t.Errorf("after a failure: %d", c.size())
	}
	if c.shrink(1000); c.size() != 400 { // a piece of a larger batch that failed too
		t.Errorf("after a larger failure: %d", c.size())
	}
	for range 10 * growAfter {
		c.good(100)
	}
	if c.size() != 400 {
		t.Errorf("small batches raised it to %d", c.size())
	}
	for range growAfter {
		c.good(390)
	}
	if c.size() != 450 {
		t.Errorf("after %d good batches: %d", growAfter, c.size())
	}
	for range 20 * growAfter {
		c.good(c.size())
	}
	if c.size() != 1000 {
		t.Errorf("in the end: %d", c.size())
	}
	if c.shrink(1); c.size() != 1 {
		t.Errorf("a single cheap record: %d", c.size())
	}
}
