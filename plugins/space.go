package plugins

import (
	"math/bits"
	"sync"
)

const (
	// minRegion is the smallest region: a batch is hardly ever smaller.
	minRegion = 64 << 10
	// outsized is from which size on a free region's pages go back to the system:
	// below it they are kept, since the next batch wants them warm.
	outsized = 16 << 20
)

// space hands out regions of one side's half of an arena. Sizes are powers of two,
// and what was freed last is given first: its pages are there, and in the cache.
type space struct {
	mu   sync.Mutex
	free [64][]uint64 // by the logarithm of the size
	next uint64       // from here on nothing was ever given
	size uint64
	used int // regions that are given
}

// region is a part of a half, by its offset in it.
type region struct {
	offset, size uint64
}

func (r region) class() int { return bits.TrailingZeros64(r.size) }

// alloc gives a region of at least n bytes, or false where none is left.
func (s *space) alloc(n int) (region, bool) {
	size := uint64(minRegion)
	if n > minRegion {
		size = 1 << bits.Len64(uint64(n)-1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := region{size: size}
	if list := s.free[r.class()]; len(list) > 0 {
		last := len(list) - 1
		r.offset, s.free[r.class()] = list[last], list[:last]
	} else if s.next <= s.size && size <= s.size-s.next {
		r.offset = s.next
		s.next += size
	} else {
		return region{}, false
	}
	s.used++
	return r, true
}

// give takes a region back.
func (s *space) give(r region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[r.class()] = append(s.free[r.class()], r.offset)
	s.used--
}
