package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// samples has every message with every member set, so that the round trip finds members
// that are not encoded.
func samples() []Message {
	rest := chunk.Chunk{}
	fill(reflect.ValueOf(&rest).Elem(), 7)
	list := make([]Message, 0)
	message := reflect.TypeFor[Message]()
	for i := range message.NumField() {
		var m Message
		field := reflect.ValueOf(&m).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		fill(field.Elem(), i+1)
		list = append(list, m)
	}
	return append(list, Message{Done: &Done{Rest: &rest}}, Message{Done: &Done{}})
}

// fill sets every exported member below v to a nonzero value.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n+i+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n+1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n+i)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("%d: ü \"\\\n\u2028", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(n) / 3)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(uint64(n) % 15)
	default:
		panic(fmt.Sprintf("a message has a member of type %s, which the test does not know", v.Type()))
	}
}

func TestRoundTrip(t *testing.T) {
	var buffer bytes.Buffer
	conn := NewConn(&buffer)
	for _, m := range samples() {
		if err := conn.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range samples() {
		got, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v, got %+v", want, got)
		}
	}
	if _, err := conn.Receive(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestFaultRoundTrip(t *testing.T) {
	var buffer bytes.Buffer
	conn := NewConn(&buffer)
	if err := conn.Send(Message{Failed: &Failed{Fault: fault.New(fault.OOM, "out of %s", "memory").WithDetail("trace")}}); err != nil {
		t.Fatal(err)
	}
	m, err := conn.Receive()
	if err != nil || m.Failed == nil {
		t.Fatal(m, err)
	}
	if f := m.Failed.Fault; f.Kind != fault.OOM || f.Message != "out of memory" || f.Detail != "trace" {
		t.Errorf("%+v", f)
	}
}

// TestDamaged: truncated and corrupt streams, and their errors.
func TestDamaged(t *testing.T) {
	var buffer bytes.Buffer
	if err := NewConn(&buffer).Send(Message{Assign: &Assign{Part: "part-1"}}); err != nil {
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
		{"oversize", head(maxMessage+1, ""), nil, "exceeds the limit"},
		{"huge", head(1<<32-1, "{}"), nil, "4294967295 bytes"},
		{"empty message", head(0, ""), nil, "decode message"},
		{"no JSON", head(2, "{]"), nil, "decode message"},
		{"another shape", head(2, "[]"), nil, "decode message"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewConn(bytes.NewBuffer(test.data)).Receive()
			if err == nil || test.is != nil && err != test.is || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error: %v", err)
			}
		})
	}
	// A member added by a newer version is ignored.
	m, err := NewConn(bytes.NewBuffer(head(24, `{"news":{},"stop":{}}   `))).Receive()
	if err != nil || m.Stop == nil {
		t.Errorf("a newer message: %+v, %v", m, err)
	}
}

func TestTooLargeToSend(t *testing.T) {
	var buffer bytes.Buffer
	conn := NewConn(&buffer)
	if err := conn.Send(Message{Setup: &Setup{KernelConfig: make([]byte, maxMessage)}}); err == nil || !strings.Contains(err.Error(), "exceeds the limit") {
		t.Errorf("error: %v", err)
	}
	if buffer.Len() > 0 {
		t.Error("part of it was sent")
	}
	if err := conn.Send(Message{Stop: &Stop{}}); err != nil {
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
	conn := NewConn(rw)
	for range 3 {
		if err := conn.Send(Message{Alive: &Alive{}}); !errors.Is(err, io.ErrShortWrite) {
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
	sender, receiver := NewConn(a), NewConn(b)
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			for j := range each {
				part := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 100*i))
				if err := sender.Send(Message{Assign: &Assign{Part: part}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, senders)
	for range senders * each {
		m, err := receiver.Receive()
		if err != nil || m.Assign == nil {
			t.Fatalf("%+v, %v", m, err)
		}
		var i, j int
		if _, err := fmt.Sscanf(m.Assign.Part, "%d-%d-", &i, &j); err != nil || next[i] != j || len(m.Assign.Part) < 100*i {
			t.Fatalf("message %.20q of sender %d, which was to send %d", m.Assign.Part, i, next[i])
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
	if _, err := NewConn(b).Receive(); err != io.EOF {
		t.Errorf("error: %v", err)
	}
}

func TestSelf(t *testing.T) {
	if Self() != "" {
		t.Error("a program that did not call Init would be its own worker")
	}
	if InitCalled(); Self() == "" {
		t.Error("a program that called Init has no self")
	}
	if path, err := os.Executable(); err != nil || Self() != path {
		t.Errorf("%s, %v", Self(), err)
	}
}

func FuzzReceive(f *testing.F) {
	for _, m := range samples() {
		var buffer bytes.Buffer
		if err := NewConn(&buffer).Send(m); err != nil {
			f.Fatal(err)
		}
		f.Add(buffer.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		conn := NewConn(bytes.NewBuffer(data))
		for {
			if _, err := conn.Receive(); err != nil {
				return
			}
		}
	})
}
