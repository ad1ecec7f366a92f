package arrow

import "encoding/binary"

// Fields is a table to encode: by the number of a field, an int (of up to 32 bits), an int64, a
// string, Fields, a list of them, or Structs.
type Fields map[int]any

// Structs is a list of structs, whose size is a multiple of 8.
type Structs struct {
	Size int
	Data []byte
}

// Encode returns a table as bytes whose number is a multiple of 8.
func Encode(root Fields) []byte {
	b := &builder{data: make([]byte, 4)} // the offset of the root
	b.point(0, root)
	b.align(Align, 0)
	return b.data
}

// Message returns the beginning of a message, up to its body.
func Message(kind int, header Fields, body int64) []byte {
	table := Encode(Fields{0: Version5, 1: kind, 2: header, 3: body})
	head := binary.LittleEndian.AppendUint32(nil, Continuation)
	return append(binary.LittleEndian.AppendUint32(head, uint32(len(table))), table...)
}

// End ends the messages.
func End() []byte { return []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0} }

// AppendWords appends numbers of 8 bytes, of which structs in lists consist.
func AppendWords(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

// builder encodes tables. What a table refers to follows it.
type builder struct{ data []byte }

func (b *builder) u16(n int) { b.data = binary.LittleEndian.AppendUint16(b.data, uint16(n)) }
func (b *builder) u32(n int) { b.data = binary.LittleEndian.AppendUint32(b.data, uint32(n)) }

// align adds zeros up to a place that is a multiple of n once ahead bytes follow.
func (b *builder) align(n, ahead int) {
	for (len(b.data)+ahead)%n != 0 {
		b.data = append(b.data, 0)
	}
}

// point appends a value, and stores where it is at an offset.
func (b *builder) point(from int, value any) {
	type link struct {
		slot  int // of the offset
		value any
	}
	var links []link
	refer := func(value any) {
		links = append(links, link{len(b.data), value})
		b.u32(0)
	}
	b.align(4, 0)
	target := len(b.data)
	switch v := value.(type) {
	case string:
		b.u32(len(v))
		b.data = append(append(b.data, v...), 0)
	case Structs:
		b.align(8, 4)
		target = len(b.data)
		b.u32(len(v.Data) / v.Size)
		b.data = append(b.data, v.Data...)
	case []Fields:
		b.u32(len(v))
		for _, t := range v {
			refer(t)
		}
	case Fields:
		target = b.table(v, refer)
	}
	binary.LittleEndian.PutUint32(b.data[from:], uint32(target-from))
	for _, l := range links {
		b.point(l.slot, l.value)
	}
}

// table appends a table behind the table of its fields' places, and returns its place.
func (b *builder) table(v Fields, refer func(any)) (target int) {
	fields, wide := 0, 0
	for id, value := range v {
		fields = max(fields, id+1)
		if _, ok := value.(int64); ok {
			wide++
		}
	}
	size := 4 + 2*fields
	b.align(8, size)
	vtable := len(b.data)
	narrow := 4 * (len(v) - wide)
	first := (4 + narrow + 7) &^ 7 // of the wide ones
	b.u16(size)
	b.u16(first + 8*wide)
	next, nextWide := 4, first
	for id := range fields {
		place := 0
		switch v[id].(type) {
		case nil:
		case int64:
			place, nextWide = nextWide, nextWide+8
		default:
			place, next = next, next+4
		}
		b.u16(place)
	}
	target = len(b.data)
	b.u32(target - vtable)
	for id := range fields {
		switch n := v[id].(type) {
		case nil, int64:
		case int:
			b.u32(n)
		default:
			refer(n)
		}
	}
	b.align(8, 0)
	for id := range fields {
		if n, ok := v[id].(int64); ok {
			b.data = AppendWords(b.data, n)
		}
	}
	return target
}
