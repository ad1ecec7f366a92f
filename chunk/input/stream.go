package input

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// streamBlocks is how many blocks of a stream are in memory.
const streamBlocks = 4

// blocks are what was read from a stream and not yet taken.
type blocks struct {
	filled <-chan block
	empty  chan []byte // to be filled again
}

// block is some bytes of a stream, or its end.
type block struct {
	data []byte
	err  error
}

// blockPool holds buffers of blocks: there may be thousands of small files.
var blockPool sync.Pool

// newBlock returns a buffer for a block.
func newBlock() []byte {
	if pooled, ok := blockPool.Get().(*[]byte); ok && cap(*pooled) == readBytes {
		return *pooled
	}
	return make([]byte, readBytes)
}

// recycle keeps the empty buffers of a stream that is no longer read.
func (b blocks) recycle() {
	for {
		select {
		case buffer := <-b.empty:
			blockPool.Put(&buffer)
		default:
			return
		}
	}
}

// readBlocks reads in a separate goroutine, so that a paused stream does not delay data
// that has already arrived. It removes a byte order mark at the start.
func readBlocks(ctx context.Context, r io.Reader) blocks {
	filled, empty := make(chan block), make(chan []byte, streamBlocks)
	for range streamBlocks {
		empty <- newBlock()
	}
	go func() {
		defer close(filled)
		r := &unmarkedReader{from: r}
		for {
			var buffer []byte
			select {
			case buffer = <-empty:
			case <-ctx.Done():
				return
			}
			n, err := r.Read(buffer[:cap(buffer)])
			select {
			case filled <- block{buffer[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return blocks{filled, empty}
}

// unmarkedReader removes a byte order mark, which may arrive in pieces. It waits for no
// more bytes than it needs to decide.
type unmarkedReader struct {
	from  io.Reader
	begun bool
}

func (u *unmarkedReader) Read(p []byte) (n int, err error) {
	if u.begun {
		return u.from.Read(p)
	}
	for n < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, p[:n]) && err == nil {
		var more int
		more, err = u.from.Read(p[n:])
		n += more
	}
	u.begun = true
	if bytes.HasPrefix(p[:n], byteOrderMark) {
		n = copy(p, p[len(byteOrderMark):n])
	}
	return n, err
}
