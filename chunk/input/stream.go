package input

import (
	"bytes"
	"context"
	"errors"
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
// that has already arrived. It removes a byte order mark at the start. A block consists of whole
// lines, unless it is a piece of a line that is longer, or the last one. What precedes an error
// other than io.EOF in its line is dropped, as far as it is in the same block.
func readBlocks(ctx context.Context, from io.Reader) blocks {
	filled, empty := make(chan block), make(chan []byte, streamBlocks)
	for range streamBlocks {
		empty <- newBlock()
	}
	go func() {
		defer close(filled)
		r := &unmarkedReader{from: from}
		var rest []byte // of the last block, whose buffer may be the next one
		for {
			var buffer []byte
			select {
			case buffer = <-empty:
			case <-ctx.Done():
				return
			}
			buffer = buffer[:cap(buffer)]
			n, end := copy(buffer, rest), 0
			var err error
			for err == nil && end == 0 && n < len(buffer) {
				var more int
				more, err = r.Read(buffer[n:])
				end = bytes.LastIndexByte(buffer[n:n+more], '\n') + 1
				if n += more; end > 0 {
					end += n - more
				}
			}
			if errors.Is(err, io.EOF) || err == nil && end == 0 {
				end = n
			}
			select {
			case filled <- block{buffer[:end], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			rest = buffer[end:n]
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
