package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// scalar appends a value that is not null as JSON. The value has the size that its type
// demands.
type scalar func(dst, v []byte) []byte

// maxScale limits the digits after the point of a decimal. Formats in use allow at most 76.
const maxScale = 1 << 12

// scalarOf returns how the values of a leaf are written, and whether they are text.
func scalarOf(e *parquet.SchemaElement) (write scalar, text bool, err error) {
	m, physical := e.Meaning(), *e.Physical
	switch {
	case physical > parquet.PhysicalFixed || physical < 0:
		return nil, false, fmt.Errorf("column %q has the unknown type %d", e.Name, physical)
	case physical == parquet.PhysicalFixed && (e.Length <= 0 || e.Length > parquet.MaxFixed):
		return nil, false, fmt.Errorf("column %q has values of %d bytes", e.Name, e.Length)
	case m.Decimal != nil && (m.Decimal.Scale < 0 || m.Decimal.Scale > maxScale):
		return nil, false, fmt.Errorf("column %q is a decimal with %d digits after the point", e.Name, m.Decimal.Scale)
	}
	switch _, lost := e.Type(); {
	case m.Null != nil:
		write = func(dst, _ []byte) []byte { return append(dst, "null"...) }
	case physical < parquet.PhysicalBytes:
		write = numberScalar(m, physical)
	case m.Decimal != nil:
		write = func(dst, v []byte) []byte { return parquet.AppendDecimal(dst, v, int(m.Decimal.Scale)) }
	case m.String != nil || m.Enum != nil:
		write, text = jsonline.AppendString[[]byte], true
	case m.JSON != nil:
		write, text = appendJSON, true
	case m.UUID != nil && e.Length == 16:
		write = appendUUID
	case lost == "float16":
		write = appendFloat16
	case lost == "interval":
		write = appendInterval
	default:
		write = appendBase64
	}
	return write, text, nil
}

// numberScalar returns how the values of a column of numbers are written: many types are
// stored as integers.
func numberScalar(m parquet.LogicalType, physical int32) scalar {
	switch physical {
	case parquet.PhysicalBool:
		return func(dst, v []byte) []byte { return strconv.AppendBool(dst, v[0] != 0) }
	case parquet.PhysicalInt96:
		return parquet.AppendInt96
	case parquet.PhysicalFloat:
		return appendFloat32
	case parquet.PhysicalDouble:
		return appendFloat64
	}
	append64 := jsonline.AppendInt
	switch {
	case m.Decimal != nil:
		append64 = func(dst []byte, n int64) []byte { return parquet.AppendDecimal64(dst, n, int(m.Decimal.Scale)) }
	case m.Date != nil:
		append64 = parquet.AppendDate
	case m.Time != nil:
		append64 = m.Time.AppendTime
	case m.Timestamp != nil:
		append64 = m.Timestamp.AppendTimestamp
	case m.Integer != nil && !m.Integer.Signed && physical == parquet.PhysicalInt32:
		append64 = func(dst []byte, n int64) []byte { return strconv.AppendUint(dst, uint64(uint32(n)), 10) }
	case m.Integer != nil && !m.Integer.Signed:
		append64 = func(dst []byte, n int64) []byte { return strconv.AppendUint(dst, uint64(n), 10) }
	}
	if physical == parquet.PhysicalInt32 {
		return func(dst, v []byte) []byte { return append64(dst, int64(int32(binary.LittleEndian.Uint32(v)))) }
	}
	return func(dst, v []byte) []byte { return append64(dst, int64(binary.LittleEndian.Uint64(v))) }
}

func appendFloat32(dst, v []byte) []byte {
	dst, _ = jsonline.AppendFloat32(dst, math.Float32frombits(binary.LittleEndian.Uint32(v)))
	return dst
}

func appendFloat64(dst, v []byte) []byte {
	dst, _ = jsonline.AppendFloat64(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)))
	return dst
}

// appendJSON writes a JSON document as the value that it is.
func appendJSON(dst, text []byte) []byte {
	if !jsonline.Valid(text) {
		return jsonline.AppendString(dst, text)
	}
	for _, c := range text { // outside strings, a line end is white space
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
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
