package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
)

// decimalBytes returns how many bytes hold every decimal with this number of digits, in two's
// complement.
func decimalBytes(digits int) int {
	if digits < 1 || digits > maxDigits {
		return 0
	}
	return decimalSizes[digits]
}

var decimalSizes = func() (sizes [maxDigits + 1]int) {
	largest := new(big.Int)
	for digits := 1; digits <= maxDigits; digits++ {
		largest.Mul(largest, big.NewInt(10)).Add(largest, big.NewInt(9))
		sizes[digits] = largest.BitLen()/8 + 1 // with the sign
	}
	return sizes
}()

var errDecimal = errors.New("it is not a number")

// appendDecimal appends a number as big-endian bytes: its digits without the point. It is exact.
func (of traits) appendDecimal(dst, text []byte) ([]byte, error) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	mantissa, exponent, err := splitExponent(text)
	if err != nil {
		return dst, err
	}
	whole, fraction, hasPoint := bytes.Cut(mantissa, []byte("."))
	if len(whole) == 0 || hasPoint && len(fraction) == 0 || !allDigits(whole) || !allDigits(fraction) {
		return dst, errDecimal
	}
	digits := make([]byte, 0, maxDigits+8)
	digits = bytes.TrimLeft(append(append(digits, whole...), fraction...), "0")
	if len(digits) == 0 {
		return append(dst, make([]byte, of.length)...), nil
	}
	shift := exponent - len(fraction) + of.scale // how many zeros the digits lack
	if shift < 0 {
		kept := max(0, len(digits)+shift)
		if len(bytes.Trim(digits[kept:], "0")) > 0 || len(digits)+shift < 0 {
			return dst, fmt.Errorf("it has more than %d digits after the point", of.scale)
		}
		digits, shift = digits[:kept], 0
	}
	if len(digits)+shift > of.digits {
		return dst, fmt.Errorf("it has more than %d digits before the point", of.digits-of.scale)
	}
	for range shift {
		digits = append(digits, '0')
	}
	return of.appendInteger(dst, digits, negative), nil
}

// maxExponent limits the exponent of a number, so that sums with it do not overflow.
const maxExponent = 1 << 20

// splitExponent splits a number in front of its exponent.
func splitExponent(text []byte) (mantissa []byte, exponent int, err error) {
	at := bytes.IndexAny(text, "eE")
	if at < 0 {
		return text, 0, nil
	}
	exponent, err = strconv.Atoi(string(text[at+1:]))
	if err != nil || exponent > maxExponent || exponent < -maxExponent {
		return nil, 0, errDecimal
	}
	return text[:at], exponent, nil
}

func allDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// appendInteger appends the integer with these digits, in two's complement.
func (of traits) appendInteger(dst, digits []byte, negative bool) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, of.length)...)
	value := dst[start:]
	if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
		for i := len(value) - 1; i >= 0; i-- {
			value[i], n = byte(n), n>>8
		}
	} else {
		n, _ := new(big.Int).SetString(string(digits), 10)
		n.FillBytes(value)
	}
	if negative {
		carry := true
		for i := len(value) - 1; i >= 0; i-- {
			value[i] = ^value[i]
			if carry {
				value[i]++
				carry = value[i] == 0
			}
		}
	}
	return dst
}

// AppendDecimal64 writes n / 10^scale, with exactly scale digits after the point.
func AppendDecimal64(dst []byte, n int64, scale int) []byte {
	start := len(dst)
	return insertPoint(strconv.AppendInt(dst, n, 10), start, scale)
}

// AppendDecimal is AppendDecimal64 for a big-endian number in two's complement.
func AppendDecimal(dst, data []byte, scale int) []byte {
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
