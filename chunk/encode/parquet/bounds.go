package parquet

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// bounds are the smallest and largest of some values, as encoded bytes, nil if there is none.
type bounds struct {
	of       parquet.Type
	less     func(a, b []byte) bool
	min, max []byte
	unknown  bool // there is a NaN, or a text that is too long
}

// maxBound limits the length of a text in the bounds, which every reader of the file loads.
const maxBound = 64

// newBounds returns the bounds of no value. Those of lists and of JSON, which no reader compares,
// are unknown.
func newBounds(c parquet.Column) bounds {
	b := bounds{of: c.Type, unknown: c.Depth() > 0 || c.Type == parquet.JSON, less: func(a, b []byte) bool { return bytes.Compare(a, b) < 0 }}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	switch physical, _ := c.Leaf(); {
	case c.Type == parquet.Float64:
		b.less = func(a, b []byte) bool { return math.Float64frombits(u64(a)) < math.Float64frombits(u64(b)) }
	case c.Type == parquet.Float32:
		b.less = func(a, b []byte) bool { return math.Float32frombits(u32(a)) < math.Float32frombits(u32(b)) }
	case c.Type == parquet.Uint64:
		b.less = func(a, b []byte) bool { return u64(a) < u64(b) }
	case slices.Contains([]parquet.Type{parquet.Uint8, parquet.Uint16, parquet.Uint32}, c.Type):
		b.less = func(a, b []byte) bool { return u32(a) < u32(b) }
	case physical == parquet.PhysicalInt64:
		b.less = func(a, b []byte) bool { return int64(u64(a)) < int64(u64(b)) }
	case physical == parquet.PhysicalInt32:
		b.less = func(a, b []byte) bool { return int32(u32(a)) < int32(u32(b)) }
	case strings.HasPrefix(string(c.Type), "decimal("):
		b.less = func(a, b []byte) bool {
			if (a[0]^b[0])&0x80 != 0 { // the signs differ
				return a[0]&0x80 != 0
			}
			return bytes.Compare(a, b) < 0
		}
	}
	return b
}

// add extends the bounds by a value.
func (b *bounds) add(value []byte) {
	switch {
	case b.unknown:
		return
	case len(value) > maxBound || (b.of == parquet.Float32 || b.of == parquet.Float64) && isNaN(value):
		b.min, b.max, b.unknown = nil, nil, true
		return
	}
	if b.min == nil || b.less(value, b.min) {
		b.min = append([]byte{}, value...) // not nil, even if empty
	}
	if b.max == nil || b.less(b.max, value) {
		b.max = append([]byte{}, value...)
	}
}

func isNaN(value []byte) bool {
	if len(value) == 4 {
		return math.IsNaN(float64(math.Float32frombits(binary.LittleEndian.Uint32(value))))
	}
	return math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(value)))
}

// join extends the bounds by those of a page.
func (b *bounds) join(page bounds) {
	if page.unknown {
		b.min, b.max, b.unknown = nil, nil, true
	} else if page.min != nil {
		b.add(page.min)
		b.add(page.max)
	}
}

// signZeros gives a smallest zero the sign minus and a largest one plus, as the format
// demands: readers compare zeros by their bits.
func (b *bounds) signZeros() {
	if b.of != parquet.Float32 && b.of != parquet.Float64 || b.min == nil {
		return
	}
	isZero := func(v []byte) bool {
		last := len(v) - 1
		return v[last]&0x7f == 0 && len(bytes.Trim(v[:last], "\x00")) == 0
	}
	if isZero(b.min) {
		b.min[len(b.min)-1] = 0x80
	}
	if isZero(b.max) {
		b.max[len(b.max)-1] = 0
	}
}

// ascend reports whether the bounds of pages never decrease.
func (b *bounds) ascend(index parquet.ColumnIndex) bool {
	before := -1
	for i, null := range index.NullPages {
		if null {
			continue
		}
		if before >= 0 && (b.less(index.Min[i], index.Min[before]) || b.less(index.Max[i], index.Max[before])) {
			return false
		}
		before = i
	}
	return true
}
