package shmem

import "slices"

// Space allocates blocks of a mapping. It picks the lowest free offset, so that it touches no
// more memory than the blocks in use need. It is not safe for concurrent use.
type Space struct {
	mapping []byte
	keep    int
	blocks  []block // by offset
}

type block struct {
	start, end int
	owner      uint64
}

// align keeps two processes from writing to the same cache line.
const align = 64

// NewSpace returns the space of a mapping. The pages of a freed block of keep bytes or more are
// returned to the system; smaller ones stay warm for the next block.
func NewSpace(mapping []byte, keep int) *Space { return &Space{mapping: mapping, keep: keep} }

// Take allocates n bytes for an owner, which may have several blocks. It returns the offset;
// false if there is no room.
func (s *Space) Take(owner uint64, n int) (start int, ok bool) {
	at := len(s.blocks)
	for i, b := range s.blocks {
		if b.start-start >= n {
			at = i
			break
		}
		start = (b.end + align - 1) / align * align
	}
	if at == len(s.blocks) && len(s.mapping)-start < n {
		return 0, false
	}
	s.blocks = slices.Insert(s.blocks, at, block{start, start + n, owner})
	return start, true
}

// Give frees all blocks of an owner.
func (s *Space) Give(owner uint64) {
	s.blocks = slices.DeleteFunc(s.blocks, func(b block) bool {
		if b.owner == owner && b.end-b.start >= s.keep {
			Drop(s.mapping, b.start, b.end)
		}
		return b.owner == owner
	})
}

// Blocks returns how many blocks are in use.
func (s *Space) Blocks() int { return len(s.blocks) }
