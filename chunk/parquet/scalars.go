package parquet

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// Writer returns how a value of the type is written as JSON: its bytes in a row, except that a UUID has 16, and
// that an integer may have any size. A decimal is written by its representation.
func (t Type) Writer() func(dst, v []byte) []byte {
	of, _ := t.traits()
	write := jsonline.AppendInt
	switch of.kind {
	case Bool:
		return func(dst, v []byte) []byte { return strconv.AppendBool(dst, v[0] != 0) }
	case Float32:
		return AppendFloat32
	case Float64:
		return AppendFloat64
	case String:
		return jsonline.AppendString[[]byte]
	case JSON:
		return AppendJSON
	case Bytes, fixed:
		return jsonline.AppendBase64
	case UUID:
		return AppendUUID
	case Date:
		write = AppendDate
	case Time, TimeUTC:
		write = of.unit.AppendTime
	case Timestamp, TimestampUTC:
		write = func(dst []byte, n int64) []byte { return of.unit.AppendTimestamp(dst, n, of.kind == TimestampUTC) }
	case Uint64:
		write = func(dst []byte, n int64) []byte { return strconv.AppendUint(dst, uint64(n), 10) }
	}
	return func(dst, v []byte) []byte { return write(dst, arrow.Integer(v, of.unsigned)) }
}

// AppendFloat32 writes a little-endian number, as do the others; NaN and infinity as null.
func AppendFloat32(dst, v []byte) []byte {
	dst, _ = jsonline.AppendFloat32(dst, math.Float32frombits(binary.LittleEndian.Uint32(v)))
	return dst
}

// AppendFloat64 is AppendFloat32 for double precision.
func AppendFloat64(dst, v []byte) []byte {
	dst, _ = jsonline.AppendFloat64(dst, math.Float64frombits(binary.LittleEndian.Uint64(v)))
	return dst
}

// AppendJSON writes a JSON document as the value that it is.
func AppendJSON(dst, text []byte) []byte {
	if !jsonline.Valid(text) {
		return jsonline.AppendString(dst, text)
	}
	return jsonline.AppendOnLine(dst, text)
}

// AppendUUID writes 16 bytes as a UUID.
func AppendUUID(dst, id []byte) []byte {
	dst = append(dst, '"')
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:16]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return append(dst, '"')
}

// AppendFloat16 writes a half-precision number.
func AppendFloat16(dst, data []byte) []byte {
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
