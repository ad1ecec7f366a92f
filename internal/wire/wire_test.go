package wire

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"testing"

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
		fill(reflect.ValueOf(&m).Elem().Field(i), i+1)
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
