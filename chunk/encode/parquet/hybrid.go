package parquet

import (
	"encoding/binary"
	"math/bits"
)

// hybrid encodes small integers as runs of equal ones, and as groups of eight packed in bits (the
// encoding RLE).
type hybrid struct {
	width  int // bits of a value
	data   []byte
	packed []uint32 // values that are not in a run
	value  uint32   // the last one,
	count  int      // how many times in a row
}

// widthOf returns the number of bits that values up to most take.
func widthOf(most uint32) int { return bits.Len32(most) }

// add adds a value that occurs count times.
func (h *hybrid) add(value uint32, count int) {
	if value != h.value {
		h.endRun()
		h.value = value
	}
	h.count += count
}

// endRun encodes the last run, or packs it if it is short. The number of values that are packed
// before a run is a multiple of eight.
func (h *hybrid) endRun() {
	for h.count > 0 && (h.count < 8 || len(h.packed)%8 != 0) {
		h.packed = append(h.packed, h.value)
		h.count--
	}
	if h.count > 0 {
		h.endPacked()
		h.data = binary.AppendUvarint(h.data, uint64(h.count)<<1)
		for at := 0; at < h.width; at += 8 {
			h.data = append(h.data, byte(h.value>>at))
		}
		h.count = 0
	}
}

func (h *hybrid) endPacked() {
	if len(h.packed) == 0 {
		return
	}
	for len(h.packed)%8 != 0 {
		h.packed = append(h.packed, 0)
	}
	h.data = binary.AppendUvarint(h.data, uint64(len(h.packed)/8)<<1|1)
	held, held64 := 0, uint64(0)
	for _, v := range h.packed {
		held64 |= uint64(v) << held
		for held += h.width; held >= 8; held -= 8 {
			h.data = append(h.data, byte(held64))
			held64 >>= 8
		}
	}
	h.packed = h.packed[:0]
}

// appendTo appends the values, after their length if they are levels, and begins anew.
func (h *hybrid) appendTo(dst []byte, sized bool) []byte {
	h.endRun()
	h.endPacked()
	if sized {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(h.data)))
	}
	dst = append(dst, h.data...)
	h.data = h.data[:0]
	return dst
}

// appendBits appends booleans, a byte each, as bits.
func appendBits(dst, values []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, (len(values)+7)/8)...)
	for i, v := range values {
		dst[start+i/8] |= (v & 1) << (i % 8)
	}
	return dst
}
