package parquet

import (
	"encoding/base64"

	"github.com/gpurun/gpurun/chunk/arrow"
)

// Arrow returns the schema of the columns as the metadata of Arrow, which other programs find under
// the key ARROW:schema. Rows of a typed column have vectors of a fixed size there if full reports
// that none of this leaf is null.
func (s Schema) Arrow(full func(leaf int) bool) string {
	var fields []arrow.Fields
	leaf := 0
	for _, c := range s.All() {
		fields = append(fields, c.Arrow(c.Typed && full(leaf)))
		leaf += max(len(c.Type.Members()), 1)
	}
	message := arrow.Message(arrow.SchemaMessage, arrow.Fields{1: fields, 2: s.ArrowMetadata()}, 0)
	return base64.StdEncoding.EncodeToString(message)
}

// ArrowMetadata is what Metadata returns, in Arrow's schema.
func (s Schema) ArrowMetadata() (list []arrow.Fields) {
	for _, kv := range s.Metadata() {
		list = append(list, arrow.Fields{0: kv.Key, 1: kv.Value})
	}
	return list
}

// Arrow returns the column as a field of Arrow's schema. fixed: lists have the size of the column.
func (c Column) Arrow(fixed bool) arrow.Fields {
	if members := c.Type.Members(); members != nil {
		var children []arrow.Fields
		for _, m := range members {
			children = append(children, m.Arrow(false))
		}
		return arrow.Fields{0: c.Name, 1: 1, 2: arrow.Struct, 3: arrow.Fields{}, 5: children}
	}
	sizes := make([]int, c.Depth()) // 0: any
	if fixed {
		copy(sizes, c.Shape())
	}
	return arrowField(c.Name, true, sizes, c.Type.Base())
}

// Shape returns the numbers of elements of the nested lists of a typed column.
func (c Column) Shape() []int {
	if len(c.Dimensions) == 0 && c.Width > 0 {
		return []int{c.Width}
	}
	return c.Dimensions
}

// arrowField describes a column, or the element of a list.
func arrowField(name string, nullable bool, sizes []int, base Type) arrow.Fields {
	kind, typ := base.arrow()
	children := []arrow.Fields{}
	if len(sizes) > 0 {
		kind, typ = arrow.List, arrow.Fields{}
		if sizes[0] > 0 {
			kind, typ = arrow.FixedSizeList, arrow.Fields{0: sizes[0]}
		}
		children = append(children, arrowField("element", false, sizes[1:], base))
	}
	return arrow.Fields{0: name, 1: int(truth(nullable)), 2: kind, 3: typ, 5: children}
}

// arrow returns the type of single values, and its parameters.
func (t Type) arrow() (kind int, parameters arrow.Fields) {
	of, _ := t.traits()
	switch of.kind {
	case Bool:
		return arrow.Bool, arrow.Fields{}
	case Float32:
		return arrow.Float, arrow.Fields{0: 1}
	case Float64:
		return arrow.Float, arrow.Fields{0: 2}
	case Bytes:
		return arrow.Binary, arrow.Fields{}
	case fixed:
		return arrow.FixedSizeBinary, arrow.Fields{0: int(of.length)}
	case Date:
		return arrow.Date, arrow.Fields{0: 0}
	case decimal:
		width := 128
		if of.digits > 38 {
			width = 256
		}
		return arrow.Decimal, arrow.Fields{0: of.digits, 1: of.scale, 2: width}
	case Time, TimeUTC:
		return arrow.Time, arrow.Fields{0: int(of.unit), 1: 8 * Size(of.physical, 0)}
	case Timestamp:
		return arrow.Timestamp, arrow.Fields{0: int(of.unit)}
	case TimestampUTC:
		return arrow.Timestamp, arrow.Fields{0: int(of.unit), 1: "UTC"}
	case String, JSON, UUID:
		return arrow.Text, arrow.Fields{}
	}
	return arrow.Int, arrow.Fields{0: of.bits, 1: int(truth(!of.unsigned))}
}

// ArrowSize returns how many bytes Arrow has for a value of the type: 0 for text, which has offsets, and for
// booleans, which are bits.
func (t Type) ArrowSize() int {
	of, _ := t.traits()
	switch {
	case of.kind == decimal && of.digits > 38:
		return 32
	case of.kind == decimal:
		return 16
	case of.bits > 0:
		return of.bits / 8
	case of.physical == PhysicalBool:
		return 0
	}
	return Size(of.physical, of.length)
}

// SameInArrow reports whether values of a fixed size have the same bytes in Arrow as in rows.
func (t Type) SameInArrow() bool {
	of, _ := t.traits()
	return of.kind != decimal && t.ArrowSize() == Size(of.physical, of.length)
}

// AppendArrow appends a value of a row as Arrow has it: integers may be shorter, and decimals are
// little-endian.
func (t Type) AppendArrow(dst, v []byte) []byte {
	of, _ := t.traits()
	size := t.ArrowSize()
	if of.kind != decimal {
		if of.bits > 0 {
			v = v[:size]
		}
		return append(dst, v...)
	}
	for i := len(v) - 1; i >= 0; i-- {
		dst = append(dst, v[i])
	}
	for range size - len(v) {
		dst = append(dst, byte(int8(v[0])>>7))
	}
	return dst
}

// AppendFromArrow appends a value of Arrow as rows have it.
func (t Type) AppendFromArrow(dst, v []byte) []byte {
	of, _ := t.traits()
	switch size := Size(of.physical, of.length); {
	case of.kind == decimal:
		for i := size - 1; i >= 0; i-- {
			dst = append(dst, v[i])
		}
		return dst
	case of.bits > 0:
		dst = append(dst, v...)
		for range size - len(v) {
			sign := byte(int8(v[len(v)-1]) >> 7)
			if of.unsigned {
				sign = 0
			}
			dst = append(dst, sign)
		}
		return dst
	case size == 0:
		return appendSized(dst, v)
	}
	return append(dst, v...)
}
