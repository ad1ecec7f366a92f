// Package frame sends JSON messages over a byte stream: a four-byte length in little-endian
// order, then the value.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Conn sends and receives messages. Send is safe for concurrent use; Receive must be
// called from one goroutine at a time.
type Conn struct {
	rw    io.ReadWriter
	limit int

	mu sync.Mutex
	// broken is the error of the first failed write: after a partial frame, the peer
	// could not parse any further message.
	broken error
}

// NewConn returns a Conn on rw for messages of up to limit bytes. The caller must close rw.
func NewConn(rw io.ReadWriter, limit int) *Conn { return &Conn{rw: rw, limit: limit} }

// Send writes one message.
func (c *Conn) Send(message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if err := c.check(len(body)); err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		_, c.broken = c.rw.Write(append(frame, body...))
	}
	return c.broken
}

// Receive reads one message. io.EOF means that the peer closed the connection,
// io.ErrUnexpectedEOF that it did so in the middle of a message.
func (c *Conn) Receive(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(c.rw, head[:]); err != nil {
		return err
	}
	size := int(binary.LittleEndian.Uint32(head[:]))
	if err := c.check(size); err != nil {
		return err
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.rw, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

func (c *Conn) check(size int) error {
	if size > c.limit {
		return fmt.Errorf("message of %d bytes exceeds the limit of %d", size, c.limit)
	}
	return nil
}
