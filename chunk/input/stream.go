package input

import (
	"bytes"
	"context"
	"io"
)

// streamBlocks is how many blocks of a stream are in memory.
const streamBlocks = 4

// blocks are what was read from a stream and not yet taken.
type blocks struct {
	filled <-chan block
	empty  chan<- []byte // to be filled again
}

// block is some bytes of a stream, or its end.
type block struct {
	data []byte
	err  error
}

// readBlocks reads in a separate goroutine, so that a paused stream does not delay data
// that has already arrived. It removes a byte order mark at the start.
func readBlocks(ctx context.Context, r io.Reader) blocks {
	filled, empty := make(chan block), make(chan []byte, streamBlocks)
	for range streamBlocks {
		empty <- make([]byte, readBytes)
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
