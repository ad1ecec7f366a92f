package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// scalar appends a value that is not null as JSON. It returns false if the value is text
// that is not UTF-8. The value has the size that its type demands.
type scalar func(dst, v []byte) ([]byte, bool)

// maxFixed limits the size of fixed-length values.
const maxFixed = 1 << 20

// scalarOf returns how the values of a leaf are written.
func scalarOf(e *element) (scalar, error) {
	if e.logical.kind == spec.LogicalNull {
		return func(dst, _ []byte) ([]byte, bool) { return append(dst, "null"...), true }, nil
	}
	switch e.physical {
	case spec.PhysicalBool:
		return exact(func(dst, v []byte) []byte { return strconv.AppendBool(dst, v[0] != 0) }), nil
	case spec.PhysicalInt32, spec.PhysicalInt64:
		return integerScalar(e)
	case spec.PhysicalInt96:
		return exact(func(dst, v []byte) []byte { return appendInt96(dst, v) }), nil
	case spec.PhysicalFloat:
		return exact(func(dst, v []byte) []byte {
			dst, _ = jsonline.AppendFloat32(dst, math.Float32frombits(binary.LittleEndian.Uint32(v)))
			return dst
		}), nil
	case spec.PhysicalDouble:
		return exact(func(dst, v []byte) []byte {
			dst, _ = jsonline.AppendFloat64(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)))
			return dst
		}), nil
	case spec.PhysicalBytes:
		return bytesScalar(e)
	case spec.PhysicalFixed:
		if e.length <= 0 || e.length > maxFixed {
			return nil, fmt.Errorf("column %q has values of %d bytes", e.name, e.length)
		}
		return bytesScalar(e)
	}
	return nil, fmt.Errorf("column %q has the unknown type %d", e.name, e.physical)
}

func exact(f func(dst, v []byte) []byte) scalar {
	return func(dst, v []byte) ([]byte, bool) { return f(dst, v), true }
}

// integerScalar returns how the values of an integer column are written: many types are
// stored as integers.
func integerScalar(e *element) (scalar, error) {
	value := func(v []byte) int64 { return int64(binary.LittleEndian.Uint64(v)) }
	if e.physical == spec.PhysicalInt32 {
		value = func(v []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(v))) }
	}
	t := e.meaning()
	switch t.kind {
	case spec.LogicalDecimal:
		if err := checkScale(e, t.scale); err != nil {
			return nil, err
		}
		return exact(func(dst, v []byte) []byte { return appendDecimal64(dst, value(v), int(t.scale)) }), nil
	case spec.LogicalDate:
		return exact(func(dst, v []byte) []byte { return appendDate(dst, value(v)) }), nil
	case spec.LogicalTime:
		return exact(func(dst, v []byte) []byte { return appendTime(dst, value(v), t.unit) }), nil
	case spec.LogicalTimestamp:
		return exact(func(dst, v []byte) []byte { return appendTimestamp(dst, value(v), t.unit, t.utc) }), nil
	case spec.LogicalInteger:
		if !t.signed && e.physical == spec.PhysicalInt32 {
			return exact(func(dst, v []byte) []byte { return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(v)), 10) }), nil
		}
		if !t.signed {
			return exact(func(dst, v []byte) []byte { return strconv.AppendUint(dst, binary.LittleEndian.Uint64(v), 10) }), nil
		}
	}
	return exact(func(dst, v []byte) []byte { return jsonline.AppendInt(dst, value(v)) }), nil
}

// meaning returns the logical type, also of an older file that has only a converted type.
func (e *element) meaning() logical {
	if e.logical.kind != 0 {
		return e.logical
	}
	switch e.converted {
	case spec.ConvertedUTF8:
		return logical{kind: spec.LogicalString}
	case spec.ConvertedEnum:
		return logical{kind: spec.LogicalEnum}
	case spec.ConvertedJSON:
		return logical{kind: spec.LogicalJSON}
	case spec.ConvertedDecimal:
		return logical{kind: spec.LogicalDecimal, scale: e.scale, digits: e.precision}
	case spec.ConvertedDate:
		return logical{kind: spec.LogicalDate}
	case spec.ConvertedTimeMillis:
		return logical{kind: spec.LogicalTime, unit: spec.UnitMillis, utc: true}
	case spec.ConvertedTimeMicros:
		return logical{kind: spec.LogicalTime, unit: spec.UnitMicros, utc: true}
	case spec.ConvertedTimestampMillis:
		return logical{kind: spec.LogicalTimestamp, unit: spec.UnitMillis, utc: true}
	case spec.ConvertedTimestampMicros:
		return logical{kind: spec.LogicalTimestamp, unit: spec.UnitMicros, utc: true}
	}
	if e.converted >= spec.ConvertedUint8 && e.converted <= spec.ConvertedUint64 {
		return logical{kind: spec.LogicalInteger, bits: 8 << (e.converted - spec.ConvertedUint8)}
	}
	if e.converted >= spec.ConvertedInt8 && e.converted <= spec.ConvertedInt64 {
		return logical{kind: spec.LogicalInteger, signed: true, bits: 8 << (e.converted - spec.ConvertedInt8)}
	}
	return logical{}
}

// bytesScalar returns how the values of a column of bytes are written.
func bytesScalar(e *element) (scalar, error) {
	t := e.meaning()
	fixed := e.physical == spec.PhysicalFixed
	switch {
	case t.kind == spec.LogicalString || t.kind == spec.LogicalEnum:
		return appendText, nil
	case t.kind == spec.LogicalJSON:
		return appendJSON, nil
	case t.kind == spec.LogicalDecimal:
		if err := checkScale(e, t.scale); err != nil {
			return nil, err
		}
		return exact(func(dst, v []byte) []byte { return appendDecimal(dst, v, int(t.scale)) }), nil
	case t.kind == spec.LogicalUUID && fixed && e.length == 16:
		return exact(func(dst, v []byte) []byte { return appendUUID(dst, v) }), nil
	case t.kind == spec.LogicalFloat16 && fixed && e.length == 2:
		return exact(func(dst, v []byte) []byte { return appendFloat16(dst, v) }), nil
	case e.converted == spec.ConvertedInterval && fixed && e.length == 12:
		return exact(func(dst, v []byte) []byte { return appendInterval(dst, v) }), nil
	}
	return exact(func(dst, v []byte) []byte { return appendBase64(dst, v) }), nil
}

func appendText(dst, text []byte) ([]byte, bool) {
	return jsonline.AppendStringBytes(dst, text), utf8.Valid(text)
}

// appendJSON writes a JSON document as the value that it is.
func appendJSON(dst, text []byte) ([]byte, bool) {
	if !jsonline.Valid(text) {
		return appendText(dst, text)
	}
	for _, c := range text { // outside strings, a line end is white space
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst, true
}

func appendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

func appendUUID(dst, id []byte) []byte {
	dst = append(dst, '"')
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:16]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return append(dst, '"')
}

func appendInterval(dst, data []byte) []byte {
	for i, name := range []string{`{"months":`, `,"days":`, `,"milliseconds":`} {
		dst = append(dst, name...)
		dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data[4*i:])), 10)
	}
	return append(dst, '}')
}

// appendFloat16 writes a half-precision number.
func appendFloat16(dst, data []byte) []byte {
	h := uint32(binary.LittleEndian.Uint16(data))
	sign, exponent, fraction := h>>15, h>>10&0x1f, h&0x3ff
	var f float64
	switch exponent {
	case 0x1f:
		return append(dst, "null"...) // infinite, or not a number
	case 0:
		f = math.Ldexp(float64(fraction), -24)
	default:
		f = math.Ldexp(float64(fraction|1<<10), int(exponent)-25)
	}
	if sign != 0 {
		f = -f
	}
	dst, _ = jsonline.AppendFloat32(dst, float32(f))
	return dst
}
