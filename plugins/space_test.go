package plugins

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSpace allocates and frees regions at random: none overlaps another, is smaller than
// requested or extends past the end, and a full space reports that it is full.
func TestSpace(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := space{size: minRegion * (1 + r.Uint64N(200))}
		owner := make([]int, s.size/minRegion) // of each piece, 0 if free
		var given []region
		refused := 0
		for step := 1; step < 2000; step++ {
			if len(given) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(given))
				mark(owner, given[i], 0)
				s.release(given[i])
				given[i] = given[len(given)-1]
				given = given[:len(given)-1]
				continue
			}
			n := r.IntN(10 * minRegion)
			got, ok := s.alloc(n)
			if !ok {
				refused++
				continue
			}
			if got.size < uint64(n) || got.size > max(minRegion, 2*uint64(n)) || got.offset+got.size > s.size {
				t.Fatalf("seed %d: %d bytes gave %+v of %d", seed, n, got, s.size)
			}
			if mark(owner, got, step) {
				t.Fatalf("seed %d: %+v overlaps another", seed, got)
			}
			given = append(given, got)
		}
		if s.used != len(given) {
			t.Errorf("seed %d: %d regions are used, it says %d", seed, len(given), s.used)
		}
		for _, g := range given {
			s.release(g)
		}
		if s.used != 0 {
			t.Errorf("seed %d: %d regions are used at the end", seed, s.used)
		}
		if seed == 0 && refused == 0 {
			t.Error("it never was full")
		}
	}
}

// mark records the owner of a region and reports whether it had one.
func mark(owner []int, r region, who int) bool {
	taken := false
	for piece := r.offset / minRegion; piece < (r.offset+r.size)/minRegion; piece++ {
		taken = taken || owner[piece] != 0
		owner[piece] = who
	}
	return taken
}

func TestSpaceSizes(t *testing.T) {
	for n, want := range map[int]uint64{
		-1: minRegion, 0: minRegion, 1: minRegion, minRegion: minRegion, minRegion + 1: 2 * minRegion,
		3 * minRegion: 4 * minRegion, 1 << 30: 1 << 30, 1<<30 + 1: 1 << 31,
	} {
		s := space{size: 1 << 40}
		if r, ok := s.alloc(n); !ok || r.size != want {
			t.Errorf("%d bytes gave %+v", n, r)
		}
	}
	s := space{size: 1 << 40}
	for _, n := range []int{1<<40 + 1, math.MaxInt} {
		if r, ok := s.alloc(n); ok {
			t.Errorf("%d bytes gave %+v", n, r)
		}
	}
	if s.used != 0 || s.next != 0 {
		t.Errorf("failed allocations use space: %d regions, %d bytes", s.used, s.next)
	}
}

// The region freed last is allocated first, so that its pages are reused.
func TestSpaceReuses(t *testing.T) {
	s := space{size: 1 << 30}
	first, _ := s.alloc(100_000)
	second, _ := s.alloc(100_000)
	s.release(first)
	s.release(second)
	if again, _ := s.alloc(120_000); again != second {
		t.Errorf("%+v came instead of %+v", again, second)
	}
	if other, _ := s.alloc(1); other == first {
		t.Error("a region of another size was given")
	}
	if again, _ := s.alloc(70_000); again != first {
		t.Errorf("%+v came instead of %+v", again, first)
	}
}
