package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/gpurun/gpurun/internal/jsonline"
)

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
	for _, c := range text { // outside strings, a line end is white space
		if c == '\n' || c == '\r' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// AppendBase64 writes bytes.
func AppendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
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
