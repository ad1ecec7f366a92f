package parquet

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// bounds are the smallest and largest value of a column in a row group, as encoded bytes.
type bounds struct {
	min, max []byte
	unknown  bool // there is a NaN, or a text that is too long
}

// maxBound limits the length of a text in the bounds, which every reader of the file loads.
const maxBound = 64

// add extends the bounds by a value.
func (b *bounds) add(t Type, p parsed) {
	if b.unknown || p.null {
		return
	}
	value := p.text
	var number [8]byte
	switch t {
	case JSON:
		b.unknown = true // no reader compares JSON
	case Bool:
		value = append(number[:0], byte(p.bits))
	case Float32:
		value = binary.LittleEndian.AppendUint32(number[:0], uint32(p.bits))
		b.unknown = math.IsNaN(float64(math.Float32frombits(uint32(p.bits))))
	case Float64:
		value = binary.LittleEndian.AppendUint64(number[:0], p.bits)
		b.unknown = math.IsNaN(math.Float64frombits(p.bits))
	case String, UUID, Bytes:
		b.unknown = len(value) > maxBound
	default:
		if t.physical() != spec.PhysicalFixed {
			value = t.appendPlain(number[:0], p)
		}
		b.unknown = len(value) > maxBound
	}
	if b.unknown {
		b.min, b.max = nil, nil
		return
	}
	if b.min == nil || t.less(value, b.min) {
		b.min = append([]byte{}, value...) // not nil, even if empty
	}
	if b.max == nil || t.less(b.max, value) {
		b.max = append([]byte{}, value...)
	}
}

// less compares two encoded values.
func (t Type) less(a, b []byte) bool {
	switch t {
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(a)) < math.Float64frombits(binary.LittleEndian.Uint64(b))
	case Float32:
		return math.Float32frombits(binary.LittleEndian.Uint32(a)) < math.Float32frombits(binary.LittleEndian.Uint32(b))
	case Uint64:
		return binary.LittleEndian.Uint64(a) < binary.LittleEndian.Uint64(b)
	case Uint8, Uint16, Uint32:
		return binary.LittleEndian.Uint32(a) < binary.LittleEndian.Uint32(b)
	}
	switch t.physical() {
	case spec.PhysicalInt64:
		return int64(binary.LittleEndian.Uint64(a)) < int64(binary.LittleEndian.Uint64(b))
	case spec.PhysicalInt32:
		return int32(binary.LittleEndian.Uint32(a)) < int32(binary.LittleEndian.Uint32(b))
	case spec.PhysicalFixed:
		if of, _ := t.traits(); of.kind == decimal && (a[0]^b[0])&0x80 != 0 { // the signs differ
			return a[0]&0x80 != 0
		}
	}
	return bytes.Compare(a, b) < 0
}

// signZeros gives a smallest zero the sign minus and a largest one plus, as the format
// demands: readers compare zeros by their bits.
func (b *bounds) signZeros(t Type) {
	if t != Float32 && t != Float64 || b.min == nil {
		return
	}
	isZero := func(v []byte) bool {
		last := len(v) - 1
		return v[last]&0x7f == 0 && len(bytes.Trim(v[:last], "\x00")) == 0
	}
	if isZero(b.min) {
		b.min[len(b.min)-1] = 0x80
	}
	if isZero(b.max) {
		b.max[len(b.max)-1] = 0
	}
}
