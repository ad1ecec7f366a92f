package chunk

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
)

// FileSum is the expected size and checksum of a file.
type FileSum struct {
	Bytes int64 `json:"bytes"`
	// CRC is the CRC-32C of all bytes.
	CRC uint32 `json:"crc"`
}

// Write adds bytes that follow.
func (s *FileSum) Write(p []byte) (int, error) {
	s.Bytes += int64(len(p))
	s.CRC = crc32.Update(s.CRC, castagnoli, p)
	return len(p), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// polynomial defines CRC-32C, with the lowest power in the highest bit.
const polynomial = 0x82f63b78

// Join returns the sum of two concatenated files, computed from their sums without reading
// the bytes again.
//
// A checksum is the remainder of the bytes taken as a polynomial. Appending n bytes
// multiplies what precedes them by x to the power of 8n, and checksums add up.
func (s FileSum) Join(next FileSum) FileSum {
	return FileSum{Bytes: s.Bytes + next.Bytes, CRC: multiply(shift(next.Bytes), s.CRC) ^ next.CRC}
}

// shift returns x to the power of 8n, modulo the polynomial.
func shift(n int64) uint32 {
	product, power := uint32(1)<<31, uint32(1)<<(31-8)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			product = multiply(power, product)
		}
		power = multiply(power, power)
	}
	return product
}

// multiply returns a times b modulo the polynomial.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		odd := b & 1
		b >>= 1
		if odd != 0 {
			b ^= polynomial
		}
	}
	return product
}

// CRC is a CRC-32C that is written as eight hexadecimal digits.
type CRC uint32

// Checksum returns the CRC-32C of data.
func Checksum(data []byte) CRC { return CRC(crc32.Checksum(data, castagnoli)) }

// String returns the eight digits.
func (c CRC) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText writes the eight digits.
func (c CRC) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads them.
func (c *CRC) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 32)
	if err != nil || len(text) != 8 {
		return fmt.Errorf("%q is not a CRC-32C of eight hexadecimal digits", text)
	}
	*c = CRC(n)
	return nil
}

// SumFile reads a file and returns its sum. It stops when ctx ends.
func SumFile(ctx context.Context, path string) (FileSum, error) {
	file, err := os.Open(path)
	if err != nil {
		return FileSum{}, err
	}
	defer file.Close()
	var sum FileSum
	for buffer := make([]byte, sumBuffer); ; {
		n, err := file.Read(buffer)
		_, _ = sum.Write(buffer[:n])
		switch {
		case errors.Is(err, io.EOF):
			return sum, nil
		case err != nil:
			return sum, err
		case ctx.Err() != nil:
			return sum, ctx.Err()
		}
	}
}

// sumBuffer is the read size for summing a file.
const sumBuffer = 256 << 10
