package parquet

import "encoding/binary"

// run is a level that occurs several times in a row.
type run struct {
	value byte
	count int
}

// runs encodes levels as runs of equal values (the encoding RLE).
type runs struct {
	data []byte
	run  // the last one
}

func (r *runs) add(value byte, count int) {
	if count == 0 {
		return
	}
	if value != r.value && r.count > 0 {
		r.flush()
	}
	r.value = value
	r.count += count
}

func (r *runs) flush() {
	if r.count > 0 {
		r.data = binary.AppendUvarint(r.data, uint64(r.count)<<1)
		r.data = append(r.data, r.value)
		r.count = 0
	}
}

// appendTo appends the levels with their length, and begins anew.
func (r *runs) appendTo(dst []byte) []byte {
	r.flush()
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.data)))
	dst = append(dst, r.data...)
	r.data = r.data[:0]
	return dst
}
