package python

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/shmem"
)

// space allocates memory for batches, and waits for it.
type space struct {
	mu     sync.Mutex
	change sync.Cond
	memory *shmem.Space
	blocks map[uint64][]int // offsets, by batch
	size   int
	closed bool
}

func newSpace(memory []byte) *space {
	s := &space{memory: shmem.NewSpace(memory, keepBytes), blocks: make(map[uint64][]int), size: len(memory)}
	s.change.L = &s.mu
	return s
}

// errNoSpace means that waiting would not help, or is not wanted.
var errNoSpace = fault.TooLarge.New("the batch does not fit into the memory shared with Python: use smaller batches").Set("batch-bytes")

// alloc allocates n bytes for a batch. With wait, it waits for other batches to
// finish, if there are any.
func (s *space) alloc(owner uint64, n int, wait bool) (start int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		if start, ok := s.memory.Take(n); ok {
			s.blocks[owner] = append(s.blocks[owner], start)
			return start, nil
		}
		if !wait || s.memory.Blocks() == 0 || n > s.size {
			break
		}
		s.change.Wait()
	}
	return 0, errNoSpace
}

// free frees all memory of a batch.
func (s *space) free(owner uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, start := range s.blocks[owner] {
		s.memory.Give(start)
	}
	delete(s.blocks, owner)
	s.change.Broadcast()
}

// close wakes all waiters: nothing will be freed any more.
func (s *space) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.change.Broadcast()
}
