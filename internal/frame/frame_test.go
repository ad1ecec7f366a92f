package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

const limit = 1 << 20

type message struct {
	Part string `json:"part"`
}

// TestDamaged: truncated and corrupt streams, and their errors.
func TestDamaged(t *testing.T) {
	var buffer bytes.Buffer
	if err := NewConn(&buffer, limit).Send(message{Part: "part-1"}); err != nil {
		t.Fatal(err)
	}
	frame := buffer.Bytes()
	head := func(size uint32, body string) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, size), body...)
	}
	tests := []struct {
		name string
		data []byte
		is   error
		says string
	}{
		{"nothing", nil, io.EOF, ""},
		{"part of the length", frame[:3], io.ErrUnexpectedEOF, ""},
		{"only the length", frame[:4], io.ErrUnexpectedEOF, ""},
		{"part of the message", frame[:len(frame)-1], io.ErrUnexpectedEOF, ""},
		{"oversize", head(limit+1, ""), nil, "exceeds the limit"},
		{"huge", head(1<<32-1, "{}"), nil, "4294967295 bytes"},
		{"empty message", head(0, ""), nil, "decode message"},
		{"no JSON", head(2, "{]"), nil, "decode message"},
		{"another shape", head(2, "[]"), nil, "decode message"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := NewConn(bytes.NewBuffer(test.data), limit).Receive(new(message))
			if err == nil || test.is != nil && err != test.is || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error: %v", err)
			}
		})
	}
	// A member added by a newer version is ignored.
	var m message
	err := NewConn(bytes.NewBuffer(head(24, `{"news":{},"part":"x"}  `)), limit).Receive(&m)
	if err != nil || m.Part != "x" {
		t.Errorf("a newer message: %+v, %v", m, err)
	}
}

func TestTooLargeToSend(t *testing.T) {
	var buffer bytes.Buffer
	conn := NewConn(&buffer, limit)
	if err := conn.Send(message{Part: strings.Repeat("x", limit)}); err == nil || !strings.Contains(err.Error(), "exceeds the limit") {
		t.Errorf("error: %v", err)
	}
	if buffer.Len() > 0 {
		t.Error("part of it was sent")
	}
	if err := conn.Send(message{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// breaking writes only two bytes and fails.
type breaking struct {
	bytes.Buffer
	writes int
}

func (b *breaking) Write(p []byte) (int, error) {
	b.writes++
	n, _ := b.Buffer.Write(p[:2])
	return n, io.ErrShortWrite
}

func TestNothingFollowsABrokenMessage(t *testing.T) {
	rw := &breaking{}
	conn := NewConn(rw, limit)
	for range 3 {
		if err := conn.Send(message{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("error: %v", err)
		}
	}
	if rw.writes != 1 {
		t.Errorf("%d writes", rw.writes)
	}
}

// Messages of several senders arrive whole.
func TestConcurrentSenders(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	const senders, each = 8, 50
	sender, receiver := NewConn(a, limit), NewConn(b, limit)
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for j := range each {
				part := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 100*i))
				if err := sender.Send(message{Part: part}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, senders)
	for range senders * each {
		var m message
		if err := receiver.Receive(&m); err != nil {
			t.Fatal(err)
		}
		var i, j int
		if _, err := fmt.Sscanf(m.Part, "%d-%d-", &i, &j); err != nil || next[i] != j || len(m.Part) < 100*i {
			t.Fatalf("message %.20q of sender %d, which was to send %d", m.Part, i, next[i])
		}
		next[i]++
	}
	group.Wait()
}

// When the peer closes the connection, a blocked Receive returns io.EOF.
func TestPeerGone(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	time.AfterFunc(10*time.Millisecond, func() { a.Close() })
	if err := NewConn(b, limit).Receive(new(message)); err != io.EOF {
		t.Errorf("error: %v", err)
	}
}
