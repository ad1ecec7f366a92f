package parquet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// lz4Block encodes data as one block: 15 literals, a match that repeats them as far as they
// recur, and the rest as literals.
func lz4Block(data []byte) []byte {
	const period = 15
	match := 0
	for period+match < len(data) && data[period+match] == data[match] {
		match++
	}
	length := func(n int) (out []byte) {
		for n -= 15; n >= 255; n -= 255 {
			out = append(out, 255)
		}
		return append(out, byte(n))
	}
	out := append([]byte{0xff}, length(period)...)
	out = append(out, data[:period]...)
	out = append(append(out, period, 0), length(match-4)...)
	rest := data[period+match:]
	if len(rest) < 15 {
		return append(append(out, byte(len(rest)<<4)), rest...)
	}
	return append(append(append(out, 0xf0), length(len(rest))...), rest...)
}

// TestHadoopLZ4: codec LZ4 means blocks with Hadoop's headers, or one block without.
func TestHadoopLZ4(t *testing.T) {
	want := append(bytes.Repeat([]byte("a page of text "), 100), "the end"...)
	framed := func(data []byte) []byte {
		packed := lz4Block(data)
		head := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
		return append(binary.BigEndian.AppendUint32(head, uint32(len(packed))), packed...)
	}
	for name, packed := range map[string][]byte{
		"one block": framed(want), "two blocks": append(framed(want[:700]), framed(want[700:])...), "without headers": lz4Block(want),
	} {
		if got, err := decompress(parquet.CodecLZ4, nil, packed, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %.40q", name, err, got)
		}
		for _, size := range []int{0, len(want) - 1, len(want) + 1} {
			if got, err := decompress(parquet.CodecLZ4, nil, packed, size); err == nil {
				t.Errorf("%s, %d bytes expected: %.40q", name, size, got)
			}
		}
		for cut := range packed {
			if got, err := decompress(parquet.CodecLZ4, nil, packed[:cut], len(want)); err == nil {
				t.Errorf("%s, %d bytes: %.40q", name, cut, got)
			}
		}
	}
}

// FuzzLZ4: whatever a page holds, decoding writes no more than its size.
func FuzzLZ4(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x05\x40abcd"), uint16(4))
	f.Fuzz(func(t *testing.T, packed []byte, size uint16) {
		for _, codec := range []int32{parquet.CodecLZ4, parquet.CodecLZ4Raw} {
			got, err := decompress(codec, nil, packed, int(size))
			if err == nil && len(got) != int(size) {
				t.Errorf("codec %d: %d bytes instead of %d", codec, len(got), size)
			}
		}
	})
}
