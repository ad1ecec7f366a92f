package parquet

import (
	"encoding/base64"
	"encoding/binary"
)

// Arrow returns the schema of the columns as the metadata of Arrow, which other programs find under
// the key ARROW:schema. Rows of a typed column have vectors of a fixed size there if full reports
// that none is null.
func (s Schema) Arrow(full func(column int) bool) string {
	var fields []fbTable
	for i, c := range s.All() {
		sizes := make([]int, c.Depth()) // 0: any
		if c.Typed && full(i) {
			if copy(sizes, c.Dimensions) == 0 && c.Width > 0 {
				sizes[0] = c.Width
			}
		}
		fields = append(fields, arrowField(c.Name, true, sizes, c.Type.Base()))
	}
	schema := fbTable{1: fields}
	const version5, isSchema = 4, 1
	message := new(fbBuilder)
	message.data = make([]byte, 4) // the offset of the root
	message.point(0, fbTable{0: version5, 1: isSchema, 2: schema})
	for len(message.data)%8 != 0 {
		message.data = append(message.data, 0)
	}
	head := binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(len(message.data)))
	return base64.StdEncoding.EncodeToString(append(head, message.data...))
}

// Types of Arrow, which are the fields of the union Type.
const (
	arrowInt             = 2
	arrowFloat           = 3
	arrowBinary          = 4
	arrowText            = 5
	arrowBool            = 6
	arrowDecimal         = 7
	arrowDate            = 8
	arrowTime            = 9
	arrowTimestamp       = 10
	arrowList            = 12
	arrowFixedSizeBinary = 15
	arrowFixedSizeList   = 16
)

// arrowField describes a column, or the element of a list.
func arrowField(name string, nullable bool, sizes []int, base Type) fbTable {
	kind, typ := base.arrow()
	children := []fbTable{}
	if len(sizes) > 0 {
		kind, typ = arrowList, fbTable{}
		if sizes[0] > 0 {
			kind, typ = arrowFixedSizeList, fbTable{0: sizes[0]}
		}
		children = append(children, arrowField("element", false, sizes[1:], base))
	}
	return fbTable{0: name, 1: int(truth(nullable)), 2: kind, 3: typ, 5: children}
}

// arrow returns the type of single values, and its parameters.
func (t Type) arrow() (kind int, parameters fbTable) {
	of, _ := t.traits()
	switch of.kind {
	case Bool:
		return arrowBool, fbTable{}
	case Float32:
		return arrowFloat, fbTable{0: 1}
	case Float64:
		return arrowFloat, fbTable{0: 2}
	case Bytes:
		return arrowBinary, fbTable{}
	case fixed:
		return arrowFixedSizeBinary, fbTable{0: int(of.length)}
	case Date:
		return arrowDate, fbTable{0: 0}
	case decimal:
		width := 128
		if of.digits > 38 {
			width = 256
		}
		return arrowDecimal, fbTable{0: of.digits, 1: of.scale, 2: width}
	case Time, TimeUTC:
		return arrowTime, fbTable{0: int(of.unit), 1: 8 * Size(of.physical, 0)}
	case Timestamp:
		return arrowTimestamp, fbTable{0: int(of.unit)}
	case TimestampUTC:
		return arrowTimestamp, fbTable{0: int(of.unit), 1: "UTC"}
	case String, JSON, UUID:
		return arrowText, fbTable{}
	}
	return arrowInt, fbTable{0: of.bits, 1: int(truth(!of.unsigned))}
}

// fbTable is a table of FlatBuffers: by the number of a field, an integer (of up to 32 bits), a string,
// a table or a list of tables.
type fbTable map[int]any

// fbBuilder encodes tables. What a table refers to follows it.
type fbBuilder struct{ data []byte }

func (b *fbBuilder) u32(n int) { b.data = binary.LittleEndian.AppendUint32(b.data, uint32(n)) }

// point appends a value, and stores where it is at an offset.
func (b *fbBuilder) point(from int, value any) {
	var slots []int
	var refer []any
	target := len(b.data)
	switch v := value.(type) {
	case string:
		b.u32(len(v))
		b.data = append(append(b.data, v...), 0)
		for len(b.data)%4 != 0 {
			b.data = append(b.data, 0)
		}
	case []fbTable:
		b.u32(len(v))
		for _, t := range v {
			slots, refer = append(slots, len(b.data)), append(refer, t)
			b.u32(0)
		}
	case fbTable:
		fields := 0
		for id := range v {
			fields = max(fields, id+1)
		}
		size := 4 + 2*fields // of the table of offsets, which precedes the fields
		b.data = binary.LittleEndian.AppendUint16(b.data, uint16(size))
		b.data = binary.LittleEndian.AppendUint16(b.data, uint16(4+4*len(v)))
		next := 4
		for id := range fields {
			place := 0
			if _, ok := v[id]; ok {
				place, next = next, next+4
			}
			b.data = binary.LittleEndian.AppendUint16(b.data, uint16(place))
		}
		if len(b.data)%4 != 0 {
			b.data = append(b.data, 0, 0)
		}
		target, size = len(b.data), len(b.data)-target
		b.u32(size)
		for id := range fields {
			n, isNumber := v[id].(int)
			if field, ok := v[id]; ok && !isNumber {
				slots, refer = append(slots, len(b.data)), append(refer, field)
			}
			if _, ok := v[id]; ok {
				b.u32(n)
			}
		}
	}
	binary.LittleEndian.PutUint32(b.data[from:], uint32(target-from))
	for i, slot := range slots {
		b.point(slot, refer[i])
	}
}
