package chunk

import (
	"testing"

	"github.com/gpurun/gpurun/chunk/chunktest"
)

// TestJoinedSums: the joined sum of two files is the sum of their concatenation.
func TestJoinedSums(t *testing.T) {
	r := chunktest.Seeded(t)
	sum := func(data []byte) FileSum {
		return FileSum{Bytes: int64(len(data)), CRC: uint32(Checksum(data))}
	}
	data := make([]byte, 1<<20+77)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for _, at := range []int{0, 1, 2, 7, 8, 4095, 4096, 1 << 20, len(data) - 1, len(data)} {
		if got := sum(data[:at]).Join(sum(data[at:])); got != sum(data) {
			t.Errorf("joined at %d: %v, want %v", at, got, sum(data))
		}
	}
	// Too long to read here: zeroes after a byte, in one piece and in two.
	zeroes := FileSum{Bytes: 1 << 20, CRC: uint32(Checksum(make([]byte, 1<<20)))}
	for range 20 { // up to a terabyte
		zeroes = zeroes.Join(zeroes)
	}
	one := sum(data[:1])
	if whole := one.Join(zeroes).Join(zeroes); whole != one.Join(zeroes.Join(zeroes)) {
		t.Errorf("%v differs", whole)
	}
}
