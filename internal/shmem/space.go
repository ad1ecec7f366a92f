package shmem

import (
	"cmp"
	"slices"
)

// Space allocates blocks of a mapping. It picks the lowest free offset, so that it touches no
// more memory than the blocks in use need. It is not safe for concurrent use.
type Space struct {
	mapping []byte
	keep    int
	blocks  []block // by offset
	packed  int     // the first blocks, between which nothing is free
}

type block struct{ start, end int }

// next returns where another block can begin behind this one.
func (b block) next() int { return (b.end + align - 1) / align * align }

// align keeps two processes from writing to the same cache line.
const align = 64

// NewSpace returns the space of a mapping. The pages of a freed block of keep bytes or more are
// returned to the system; smaller ones stay warm for the next block.
func NewSpace(mapping []byte, keep int) *Space { return &Space{mapping: mapping, keep: keep} }

// Take allocates n bytes. It returns the offset; false if there is no room.
func (s *Space) Take(n int) (start int, ok bool) {
	at := s.packed
	if at > 0 {
		start = s.blocks[at-1].next()
	}
	for ; at < len(s.blocks) && s.blocks[at].start-start < n; at++ {
		if at == s.packed && s.blocks[at].start == start {
			s.packed++
		}
		start = s.blocks[at].next()
	}
	if at == len(s.blocks) && len(s.mapping)-start < n {
		return 0, false
	}
	s.blocks = slices.Insert(s.blocks, at, block{start, start + n})
	return start, true
}

// Give frees the block at an offset.
func (s *Space) Give(start int) {
	at, ok := slices.BinarySearchFunc(s.blocks, start, func(b block, start int) int { return cmp.Compare(b.start, start) })
	if !ok {
		return
	}
	if b := s.blocks[at]; b.end-b.start >= s.keep {
		Drop(s.mapping, b.start, b.end)
	}
	s.blocks = slices.Delete(s.blocks, at, at+1)
	s.packed = min(s.packed, at)
}

// Blocks returns how many blocks are in use.
func (s *Space) Blocks() int { return len(s.blocks) }
