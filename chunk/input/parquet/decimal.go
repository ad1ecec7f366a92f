package parquet

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
)

// maxScale limits the digits after the point. Formats in use allow at most 76.
const maxScale = 1 << 12

func checkScale(e *element, scale int64) error {
	if scale < 0 || scale > maxScale {
		return fmt.Errorf("column %q is a decimal with %d digits after the point", e.name, scale)
	}
	return nil
}

// appendDecimal64 writes n / 10^scale, with exactly scale digits after the point.
func appendDecimal64(dst []byte, n int64, scale int) []byte {
	start := len(dst)
	return insertPoint(strconv.AppendInt(dst, n, 10), start, scale)
}

// appendDecimal is appendDecimal64 for a big-endian number in two's complement.
func appendDecimal(dst, data []byte, scale int) []byte {
	n := new(big.Int).SetBytes(data)
	if len(data) > 0 && data[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
	}
	start := len(dst)
	return insertPoint(n.Append(dst, 10), start, scale)
}

// insertPoint inserts a decimal point into the integer at dst[start:].
func insertPoint(dst []byte, start, scale int) []byte {
	if scale == 0 {
		return dst
	}
	if dst[start] == '-' {
		start++
	}
	for len(dst)-start <= scale {
		dst = slices.Insert(dst, start, '0')
	}
	return slices.Insert(dst, len(dst)-scale, '.')
}
