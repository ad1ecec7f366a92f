package plugins

import (
	"math/bits"
	"sync"
)

const (
	// minRegion is the smallest region: few batches are smaller.
	minRegion = 64 << 10
	// outsized is the size from which the pages of a freed region are returned to the
	// system. Smaller regions keep theirs warm for the next batch.
	outsized = 16 << 20
)

// space allocates regions of one side's half of an arena. Sizes are powers of two. The
// region freed last is reused first, because its pages are resident and likely cached.
type space struct {
	mu   sync.Mutex
	free [64][]uint64 // by the logarithm of the size
	next uint64       // nothing from here on was ever allocated
	size uint64
	used int // allocated regions
}

// region is a part of a half, at an offset in it.
type region struct {
	offset, size uint64
}

func (r region) class() int { return bits.TrailingZeros64(r.size) }

// alloc allocates a region of at least n bytes; false if there is no room.
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

// release frees a region.
func (s *space) release(r region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[r.class()] = append(s.free[r.class()], r.offset)
	s.used--
}
