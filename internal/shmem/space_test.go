package shmem

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSpace allocates and frees blocks at random: none overlaps another or extends past the
// end, and a full space reports that it is full.
func TestSpace(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		owners := make([]uint64, align*(1+r.IntN(200))) // of each byte, 0 if free
		s := NewSpace(make([]byte, len(owners)), math.MaxInt)
		refused, given := 0, map[uint64]int{}
		for owner := uint64(1); owner < 2000; owner++ {
			if r.IntN(2) == 0 {
				for other := range given {
					s.Give(other)
					delete(given, other)
					for i := range owners {
						if owners[i] == other {
							owners[i] = 0
						}
					}
					break
				}
				continue
			}
			n := 1 + r.IntN(10*align)
			start, ok := s.Take(owner, n)
			if !ok {
				refused++
				continue
			}
			if start%align != 0 || start+n > len(owners) {
				t.Fatalf("seed %d: %d bytes at %d of %d", seed, n, start, len(owners))
			}
			for i := range n {
				if owners[start+i] != 0 {
					t.Fatalf("seed %d: %d bytes at %d overlap another block", seed, n, start)
				}
				owners[start+i] = owner
			}
			given[owner]++
		}
		if s.Blocks() != len(given) {
			t.Errorf("seed %d: %d blocks, it says %d", seed, len(given), s.Blocks())
		}
		for owner := range given {
			s.Give(owner)
		}
		if s.Blocks() != 0 || seed == 0 && refused == 0 {
			t.Errorf("seed %d: %d blocks at the end, %d refused", seed, s.Blocks(), refused)
		}
	}
}

// All blocks of an owner are freed, and the lowest offset is taken first.
func TestSpaceOfOwners(t *testing.T) {
	s := NewSpace(make([]byte, 1000), math.MaxInt)
	for i, want := range []int{0, 128, 256} {
		if at, ok := s.Take(uint64(i%2), 100); !ok || at != want {
			t.Errorf("block %d at %d, %v", i, at, ok)
		}
	}
	for _, n := range []int{1000, math.MaxInt} {
		if at, ok := s.Take(9, n); ok {
			t.Errorf("%d bytes at %d", n, at)
		}
	}
	s.Give(0)
	if at, ok := s.Take(3, 128); !ok || at != 0 || s.Blocks() != 2 {
		t.Errorf("at %d, %v; %d blocks", at, ok, s.Blocks())
	}
}
