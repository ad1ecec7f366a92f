package python

import (
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
)

// space allocates from the half of the shared memory that this process writes. It
// picks the lowest free offset, so that it touches no more memory than the batches
// in flight need.
type space struct {
	size int
	// freed is called for each block that is freed.
	freed func(start, end int)

	mu     sync.Mutex
	change sync.Cond
	blocks []block // by offset
	closed bool
}

type block struct {
	start, end int
	owner      uint64
}

// blockAlign keeps two processes from writing to the same cache line.
const blockAlign = 64

func newSpace(size int, freed func(start, end int)) *space {
	s := &space{size: size, freed: freed}
	s.change.L = &s.mu
	return s
}

// errNoSpace means that waiting would not help, or is not wanted.
var errNoSpace = fault.TooLarge.New("the batch does not fit into the memory shared with Python: use smaller batches").Set("batch-bytes")

// take allocates n bytes for a batch. With wait, it waits for other batches to
// finish, if there are any.
func (s *space) take(owner uint64, n int, wait bool) (start int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		start, at := s.place(n)
		switch {
		case s.closed:
			return 0, errNoSpace
		case at >= 0:
			s.blocks = slices.Insert(s.blocks, at, block{start, start + n, owner})
			return start, nil
		case !wait || len(s.blocks) == 0 || n > s.size:
			return 0, errNoSpace
		}
		s.change.Wait()
	}
}

// place returns the lowest offset of n free bytes and its index among the blocks;
// index -1 if there is no room.
func (s *space) place(n int) (start, at int) {
	for i, b := range s.blocks {
		if b.start-start >= n {
			return start, i
		}
		start = (b.end + blockAlign - 1) / blockAlign * blockAlign
	}
	if s.size-start >= n {
		return start, len(s.blocks)
	}
	return 0, -1
}

// give frees all blocks of a batch.
func (s *space) give(owner uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks = slices.DeleteFunc(s.blocks, func(b block) bool {
		if b.owner == owner {
			s.freed(b.start, b.end)
		}
		return b.owner == owner
	})
	s.change.Broadcast()
}

// close wakes all waiters: nothing will be freed any more.
func (s *space) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.change.Broadcast()
}
