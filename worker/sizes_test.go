package worker

import "testing"

// TestBatchSizes: the size is halved when memory is full, and grows back slowly.
func TestBatchSizes(t *testing.T) {
	b := batchSizes{want: 128}
	check := func(want int) {
		t.Helper()
		if got := b.size(); got != want {
			t.Errorf("size %d, want %d", got, want)
		}
	}
	check(128)
	b.shrink(128)
	check(64)
	b.shrink(64)
	b.shrink(32)
	check(16)
	b.shrink(100) // a late report on an older, larger batch
	check(16)
	for range growAfter {
		check(16)
		b.good(1, 0)
	}
	check(18)
	for range 100 * growAfter {
		b.good(1, 0)
	}
	check(128)
	b.shrink(1)
	check(1)
}
