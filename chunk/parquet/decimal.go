package parquet

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/gpurun/gpurun/chunk/arrow"
)

// Decimal returns the type of decimals, "" if there is none with this number of digits.
func Decimal(digits, scale int) Type {
	if digits < 1 || scale < 0 || scale > digits {
		return ""
	}
	return Type(fmt.Sprintf("decimal(%d,%d)", digits, scale))
}

// power returns 10^n.
func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

var (
	errDecimal = errors.New("it is not a number")
	// isDecimal limits the exponent, so that numbers take little memory.
	isDecimal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`) })
)

// appendDecimal appends a number as big-endian bytes: its digits without the point. It is exact.
func (of traits) appendDecimal(dst, text []byte) ([]byte, error) {
	if !isDecimal().Match(text) {
		return dst, errDecimal
	}
	number, _ := new(big.Rat).SetString(string(text))
	number.Mul(number, new(big.Rat).SetInt(power(of.scale)))
	integer := number.Num()
	switch {
	case !number.IsInt():
		return dst, fmt.Errorf("it has more than %d digits after the point", of.scale)
	case integer.CmpAbs(power(of.digits)) >= 0:
		return dst, fmt.Errorf("it has more than %d digits before the point", of.digits-of.scale)
	case integer.Sign() < 0: // in two's complement
		integer.Add(integer, new(big.Int).Lsh(big.NewInt(1), uint(8*of.length)))
	}
	return append(dst, integer.FillBytes(make([]byte, of.length))...), nil
}

// appendDecimal64 writes n / 10^scale, with exactly scale digits after the point.
func appendDecimal64(dst []byte, n int64, scale int) []byte {
	start := len(dst)
	return insertPoint(strconv.AppendInt(dst, n, 10), start, scale)
}

// AppendDecimal is appendDecimal64 for a big-endian number in two's complement.
func AppendDecimal(dst, data []byte, scale int) []byte {
	n := new(big.Int).SetBytes(data)
	if len(data) > 0 && data[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
	}
	start := len(dst)
	return insertPoint(n.Append(dst, 10), start, scale)
}

// AppendLittleDecimal is AppendDecimal for a little-endian number. Most of those with 16 bytes fit into 8.
func AppendLittleDecimal(dst, data []byte, scale int) []byte {
	if len(data) <= 8 {
		return appendDecimal64(dst, arrow.Integer(data, false), scale)
	}
	if low := arrow.Integer(data[:8], false); len(data) == 16 && low>>63 == arrow.Integer(data[8:], false) {
		return appendDecimal64(dst, low, scale)
	}
	var big [32]byte
	for i, b := range data {
		big[len(data)-1-i] = b
	}
	return AppendDecimal(dst, big[:len(data)], scale)
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
