package parquet

import (
	"encoding/binary"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// thriftWriter writes Thrift's compact protocol, the encoding of Parquet's metadata.
type thriftWriter struct {
	data []byte
	last int64   // the number of the last field
	open []int64 // the last fields of the structs around the current one
}

func (t *thriftWriter) field(id int64, kind byte) {
	if delta := id - t.last; delta > 0 && delta <= 15 {
		t.data = append(t.data, byte(delta)<<4|kind)
	} else {
		t.data = binary.AppendVarint(append(t.data, kind), id)
	}
	t.last = id
}

func (t *thriftWriter) boolean(id int64, value bool) {
	if value {
		t.field(id, spec.ThriftTrue)
	} else {
		t.field(id, spec.ThriftFalse)
	}
}

func (t *thriftWriter) i8(id int64, value byte) {
	t.field(id, spec.ThriftI8)
	t.data = append(t.data, value)
}

func (t *thriftWriter) i16(id, value int64) {
	t.field(id, spec.ThriftI16)
	t.data = binary.AppendVarint(t.data, value)
}

func (t *thriftWriter) i32(id, value int64) {
	t.field(id, spec.ThriftI32)
	t.data = binary.AppendVarint(t.data, value)
}

func (t *thriftWriter) i64(id, value int64) {
	t.field(id, spec.ThriftI64)
	t.data = binary.AppendVarint(t.data, value)
}

func (t *thriftWriter) text(id int64, value string) {
	t.field(id, spec.ThriftBinary)
	t.element(value)
}

// element writes a string in a list.
func (t *thriftWriter) element(value string) {
	t.data = binary.AppendUvarint(t.data, uint64(len(value)))
	t.data = append(t.data, value...)
}

// begin begins a struct that is a field.
func (t *thriftWriter) begin(id int64) {
	t.field(id, spec.ThriftStruct)
	t.beginElement()
}

// beginElement begins a struct in a list.
func (t *thriftWriter) beginElement() {
	t.open = append(t.open, t.last)
	t.last = 0
}

// end ends a struct.
func (t *thriftWriter) end() {
	t.data = append(t.data, 0)
	if n := len(t.open); n > 0 {
		t.last, t.open = t.open[n-1], t.open[:n-1]
	}
}

// list begins a list, which needs no end.
func (t *thriftWriter) list(id int64, kind byte, count int) {
	t.field(id, spec.ThriftList)
	if count < 15 {
		t.data = append(t.data, byte(count)<<4|kind)
		return
	}
	t.data = binary.AppendUvarint(append(t.data, 0xf0|kind), uint64(count))
}
