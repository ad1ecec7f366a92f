package parallel

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

const (
	// leastMemory is what a small file may take while it is decoded.
	leastMemory = 1 << 30
	// perByte is how much memory a byte of a large file may take. That is more than useful data does,
	// all of which is in memory only in a very wide file.
	perByte = 16
	// MaxRow limits the line of a row, which is held in memory.
	MaxRow = 512 << 20
)

// Limit returns how much memory decoding may take for this number of bytes of a file.
func Limit(size int64) int64 { return max(leastMemory, size*perByte) }

// Memory is what the groups of rows of a file that are being decoded share. A few bytes of a file
// can stand for gigabytes, in every column at once.
type Memory struct {
	mu     sync.Mutex
	freed  sync.Cond
	ctx    context.Context
	what   string
	limit  int64
	used   int64
	shares []*Share // of the groups that are being decoded, in order
}

// NewMemory returns memory of the given size. what takes it, for messages: "the pages of the row group".
func NewMemory(ctx context.Context, what string, limit int64) *Memory {
	m := &Memory{ctx: ctx, what: what, limit: limit}
	m.freed.L = &m.mu
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.freed.Broadcast()
	})
	return m
}

// Share is the memory of a group of rows.
type Share struct {
	of   *Memory
	used int64
}

// Join begins to decode the next group.
func (m *Memory) Join() *Share {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Share{of: m}
	m.shares = append(m.shares, s)
	return s
}

// Leave ends decoding the group.
func (s *Share) Leave() {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = slices.DeleteFunc(m.shares, func(other *Share) bool { return other == s })
	m.used -= s.used
	m.freed.Broadcast()
}

// Add takes n more bytes, or returns some if n is negative. It waits while the groups take too
// much together, except in the first of them, which the reader waits for. It fails if the group
// alone takes too much.
func (s *Share) Add(n int64) error {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 && n > m.limit-s.used {
		return fmt.Errorf("%s take more than %d MiB of memory together", m.what, m.limit>>20)
	}
	for n > m.limit-m.used && n > 0 && m.shares[0] != s {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		m.freed.Wait()
	}
	s.used += n
	m.used += n
	if n < 0 {
		m.freed.Broadcast()
	}
	return nil
}
