package shmem

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSpace allocates and frees blocks at random: each is at the lowest free offset, and a full space
// reports that it is full.
func TestSpace(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		used := make([]bool, align*(1+r.IntN(200)))
		s := NewSpace(make([]byte, len(used)), math.MaxInt)
		refused, given := 0, map[int]int{} // sizes by offset
		lowest := func(n int) (start int, ok bool) {
			for ; start+n <= len(used); start += align {
				if !slices.Contains(used[start:start+n], true) {
					return start, true
				}
			}
			return 0, false
		}
		for range 2000 {
			if r.IntN(2) == 0 {
				for start, n := range given {
					s.Give(start)
					delete(given, start)
					clear(used[start : start+n])
					break
				}
				continue
			}
			n := 1 + r.IntN(10*align)
			want, fits := lowest(n)
			start, ok := s.Take(n)
			if start != want || ok != fits {
				t.Fatalf("seed %d: %d bytes at %d, %v; the lowest free offset is %d, %v", seed, n, start, ok, want, fits)
			}
			if !ok {
				refused++
				continue
			}
			for i := range n {
				used[start+i] = true
			}
			given[start] = n
		}
		if s.Blocks() != len(given) {
			t.Errorf("seed %d: %d blocks, it says %d", seed, len(given), s.Blocks())
		}
		for start := range given {
			s.Give(start)
		}
		if s.Blocks() != 0 || seed == 0 && refused == 0 {
			t.Errorf("seed %d: %d blocks at the end, %d refused", seed, s.Blocks(), refused)
		}
	}
	if at, ok := NewSpace(make([]byte, 1000), 0).Take(math.MaxInt); ok {
		t.Errorf("more bytes than there are, at %d", at)
	}
}
