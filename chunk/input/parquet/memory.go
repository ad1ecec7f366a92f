package parquet

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

const (
	// leastMemory is what the pages of a small file may take when they are decoded.
	leastMemory = 1 << 30
	// perByte is how much memory a byte of a large file may take. That is more than pages of
	// useful data do, all of which are in memory only in a very wide file.
	perByte = 16
)

// maxRow limits the line of a row, which is held in memory. It is a variable so that tests can
// lower it.
var maxRow = 512 << 20

// memory is what the row groups of a file that are being decoded share. A few bytes of a file can
// stand for gigabytes, in every column at once.
type memory struct {
	mu     sync.Mutex
	freed  sync.Cond
	ctx    context.Context
	limit  int64
	used   int64
	shares []*share // of the row groups that are being decoded, in order
}

func newMemory(ctx context.Context, limit int64) *memory {
	m := &memory{ctx: ctx, limit: limit}
	m.freed.L = &m.mu
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.freed.Broadcast()
	})
	return m
}

// share is the memory of a row group.
type share struct {
	of   *memory
	used int64
}

// join begins to decode the next row group.
func (m *memory) join() *share {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &share{of: m}
	m.shares = append(m.shares, s)
	return s
}

// leave ends decoding the row group.
func (s *share) leave() {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = slices.DeleteFunc(m.shares, func(other *share) bool { return other == s })
	m.used -= s.used
	m.freed.Broadcast()
}

// add takes n more bytes, or returns some if n is negative. It waits while the row groups take too
// much together, except in the first of them, which the reader waits for. It fails if the row
// group alone takes too much.
func (s *share) add(n int64) error {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 && n > m.limit-s.used {
		return fmt.Errorf("the pages of the row group take more than %d MiB of memory together", m.limit>>20)
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
