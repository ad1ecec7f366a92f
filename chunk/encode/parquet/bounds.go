package parquet

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// bounds are the smallest and largest of some values, as encoded bytes, nil if there is none.
type bounds struct {
	isNumber, float  bool
	decimal, natural bool
	min, max         []byte
	unknown          bool // there is a NaN, or a text that is too long
}

// maxBound limits the length of a text in the bounds, which every reader of the file loads.
const maxBound = 64

// newBounds returns the bounds of no value. Those of lists and of JSON, which no reader compares,
// are unknown.
func newBounds(c parquet.Leaf) bounds {
	physical, _ := c.Leaf()
	float := physical == parquet.PhysicalFloat || physical == parquet.PhysicalDouble
	return bounds{
		unknown:  c.Depth() > 0 || c.Type == parquet.JSON,
		isNumber: float || physical == parquet.PhysicalInt32 || physical == parquet.PhysicalInt64, float: float,
		decimal: strings.HasPrefix(string(c.Type), "decimal("), natural: strings.HasPrefix(string(c.Type), "uint"),
	}
}

// less reports whether a value comes before another.
func (b *bounds) less(v, w []byte) bool {
	switch {
	case b.isNumber:
		return b.order(v) < b.order(w)
	case b.decimal && (v[0]^w[0])&0x80 != 0: // the signs differ
		return v[0]&0x80 != 0
	}
	return bytes.Compare(v, w) < 0
}

// order returns a number that compares as a number of the column does.
func (b *bounds) order(v []byte) uint64 {
	const sign = 1 << 63
	n, isLong := uint64(0), len(v) == 8
	if isLong {
		n = binary.LittleEndian.Uint64(v)
	} else {
		n = uint64(binary.LittleEndian.Uint32(v))
	}
	switch {
	case b.float:
		if n = math.Float64bits(floatOf(v)); n&sign != 0 {
			return ^n
		}
	case b.natural:
		return n
	case !isLong:
		n = uint64(int64(int32(n)))
	}
	return n ^ sign
}

func floatOf(v []byte) float64 {
	if len(v) == 8 {
		return math.Float64frombits(binary.LittleEndian.Uint64(v))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
}

// add extends the bounds by a value.
func (b *bounds) add(value []byte) {
	switch {
	case b.unknown:
		return
	case len(value) > maxBound || b.float && math.IsNaN(floatOf(value)):
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

// join extends the bounds by the bounds of a page.
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
	if !b.float || b.min == nil {
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
