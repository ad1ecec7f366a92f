package parquet

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/gpurun/gpurun/chunk/input/tree"
)

// intact fails unless encoded values are as they must be: they may end too early or contradict themselves.
func intact(ok bool) {
	if !ok {
		tree.Fail("the encoded values are damaged")
	}
}

// runs are small integers in the encoding RLE, a mix of runs and of values packed in bits. A
// few bytes can stand for millions of values, so they are decoded a block at a time.
type runs struct {
	data  []byte
	width uint // bits of a value
	left  int  // values that are not decoded
	// The current run:
	count  int    // values of it that are not decoded
	value  uint32 // all of them, if they are not packed
	packed bool
	bit    uint // where the next one is in data, if they are
}

// blockValues is how many values are decoded at a time.
const blockValues = 1024

// next begins the next run.
func (r *runs) next() {
	if r.packed { // count is in groups of 8
		r.data, r.packed = r.data[min((r.bit+7)/8, uint(len(r.data))):], false
	}
	header, n := binary.Uvarint(r.data)
	intact(n > 0 && header >= 2)
	r.data = r.data[n:]
	most := uint64(r.left)
	if header&1 == 1 {
		r.count, r.packed, r.bit = int(min(8*min(header>>1, 1<<60), most)), true, 0
		intact(uint64(len(r.data)) >= (uint64(r.count)*uint64(r.width)+7)/8)
		return
	}
	size := int(r.width+7) / 8
	intact(len(r.data) >= size)
	r.count, r.value = int(min(header>>1, most)), 0
	for i := range size {
		r.value |= uint32(r.data[i]) << (8 * i)
	}
	r.data = r.data[size:]
}

// step returns how many values of a run follow, at most n, and begins the next run if it must.
func (r *runs) step(n int) int {
	if r.count == 0 {
		r.next()
	}
	n = min(n, r.count)
	r.count -= n
	r.left -= n
	return n
}

// readRuns fills dst, which must not be longer than what is left.
func readRuns[T byte | uint32](r *runs, dst []T) {
	for len(dst) > 0 {
		n := r.step(len(dst))
		if r.packed {
			unpack(dst[:n], r.data, r.bit, r.width)
			r.bit += uint(n) * r.width
		} else {
			for i := range n {
				dst[i] = T(r.value)
			}
		}
		dst = dst[n:]
	}
}

// occurrences returns how many of the values are equal to one. It decodes a copy.
func (r runs) occurrences(of byte) (total int) {
	var block [blockValues]byte
	for r.left > 0 {
		if r.count == 0 {
			r.next()
		}
		if !r.packed {
			if r.value == uint32(of) {
				total += r.count
			}
			r.left, r.count = r.left-r.count, 0
			continue
		}
		part := block[:min(len(block), r.count)]
		readRuns(&r, part)
		total += bytes.Count(part, []byte{of})
	}
	return total
}

// unpack fills dst with values of width bits, the lowest bits first, from an offset in bits on.
func unpack[T byte | uint32](dst []T, data []byte, bit, width uint) {
	var held uint64
	var count uint // of its bits
	mask := uint64(1)<<width - 1
	at := bit / 8
	if bit%8 != 0 {
		held, count = uint64(data[at])>>(bit%8), 8-bit%8
		at++
	}
	for i := range dst {
		for count < width {
			held |= uint64(data[at]) << count
			at++
			count += 8
		}
		dst[i] = T(held & mask)
		held >>= width
		count -= width
	}
}

// widthOf returns the number of bits that values up to most take.
func widthOf(most int) uint { return uint(bits.Len(uint(most))) }
