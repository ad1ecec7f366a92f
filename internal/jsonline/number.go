package jsonline

import (
	"math"
	"slices"
	"strconv"
)

// AppendFloat32 appends f with the fewest digits that read back as the same float32, in
// the format of encoding/json, except that integers end in .0: readers that infer types
// from the text then see a float in every record of a column. JSON cannot represent NaN
// and infinity: for these it appends null and returns false.
func AppendFloat32(dst []byte, f float32) ([]byte, bool) {
	b := math.Float32bits(f)
	if !isPlain32(b) {
		return appendFloat(dst, float64(f), 32, true)
	}
	dst = slices.Grow(dst, maxPlain32)
	at := len(dst)
	if b>>31 != 0 {
		dst = append(dst, '-')
		at++
	}
	digits, exponent := decimal32(b)
	return dst[:at+putDecimal(dst[at:at+maxPlain32-1], digits, exponent)], true
}

// AppendFloat32s appends an array of numbers, each formatted as by AppendFloat32. It
// allocates room for all of them at once.
func AppendFloat32s(dst []byte, values []float32) []byte {
	dst = slices.Grow(dst, (maxPlain32+1)*len(values)+2) // plus commas and brackets
	dst = append(dst, '[')
	table := halves()
	for i, f := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		b := math.Float32bits(f)
		half := halfIndex(b)
		if half >= halfCount {
			dst, _ = AppendFloat32(dst, f)
			continue
		}
		if b>>31 != 0 {
			dst = append(dst, '-')
		}
		text := &table[half]
		end := len(dst) + int(text[len(text)-1])
		dst = append(dst, text[:]...)[:end] // copying all of it is faster than its length
	}
	return append(dst, ']')
}

// AppendInt appends n in decimal. It is faster than strconv for unsigned 32-bit numbers,
// which are the most common.
func AppendInt(dst []byte, n int64) []byte {
	if n < 0 || n > math.MaxUint32 {
		return strconv.AppendInt(dst, n, 10)
	}
	count := digitsIn(uint32(n))
	dst = slices.Grow(dst, count)
	at := len(dst)
	dst = dst[:at+count]
	putDigits(dst[at:], uint32(n))
	return dst
}

// AppendFloat64 is AppendFloat32 for a float64.
func AppendFloat64(dst []byte, f float64) ([]byte, bool) {
	abs := math.Abs(f)
	return appendFloat(dst, f, 64, abs != 0 && (abs < 1e-6 || abs >= 1e21))
}

func appendFloat(dst []byte, f float64, bitSize int, exponent bool) ([]byte, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...), false
	}
	if !exponent {
		dst = strconv.AppendFloat(dst, f, 'f', -1, bitSize)
		if f == math.Trunc(f) {
			dst = append(dst, ".0"...)
		}
		return dst, true
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, bitSize)
	// strconv writes at least two digits of exponent; encoding/json and JavaScript do
	// not: e-09 becomes e-9.
	if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, true
}
