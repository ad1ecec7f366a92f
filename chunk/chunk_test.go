package chunk

import "testing"

func TestSize(t *testing.T) {
	for _, c := range []struct {
		n        int64
		k, batch int
		want     int64
	}{
		{10, 3, 1, 4}, // 4, 4, 2
		{10, 1, 1, 10},
		{9, 3, 1, 3},
		{1, 3, 1, 1},
		{2, 3, 1, 1},
		{0, 3, 1, 0},
		{-1, 3, 1, 0},
		{10, 0, 1, 10},
		{10, -1, 1, 10},
		{10, 3, 0, 4},
		{10, 3, 4, 4},
		{10, 3, 3, 6},
		{10, 3, 32, 32},
		{10, 1, 32, 10}, // one chunk has one small batch anyway
		{1000, 16, 32, 64},
		{1 << 60, 7, 32, (1<<60/7 + 32) / 32 * 32},
	} {
		if got := Size(c.n, c.k, c.batch); got != c.want {
			t.Errorf("Size(%d, %d, %d) = %d, want %d", c.n, c.k, c.batch, got, c.want)
		}
	}
}
