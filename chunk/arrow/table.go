package arrow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTable means that the bytes are not a table of FlatBuffers. The methods of Table and List panic
// with it.
var ErrTable = errors.New("its metadata is damaged")

// Table is an encoded table. No offset in it is believed. The zero Table has no fields.
type Table struct {
	data []byte
	at   int
}

// Root returns the outermost table.
func Root(data []byte) Table { return Table{data, 0}.follow(0) }

// Integer returns a little-endian integer of 1, 2, 4 or 8 bytes.
func Integer(v []byte, unsigned bool) int64 {
	var n uint64
	switch len(v) {
	case 8:
		return int64(binary.LittleEndian.Uint64(v))
	case 4:
		n = uint64(binary.LittleEndian.Uint32(v))
	case 2:
		n = uint64(binary.LittleEndian.Uint16(v))
	case 1:
		n = uint64(v[0])
	default: // of a damaged file
		panic(fmt.Sprintf("integers of %d bytes", len(v)))
	}
	if unsigned {
		return int64(n)
	}
	shift := 64 - 8*len(v)
	return int64(n<<shift) >> shift
}

// number reads a number of 1, 2, 4 or 8 bytes.
func (t Table) number(at, size int, unsigned bool) int64 {
	if at < 0 || at > len(t.data)-size {
		panic(ErrTable)
	}
	return Integer(t.data[at:at+size], unsigned)
}

// follow returns what the offset at a place refers to.
func (t Table) follow(at int) Table { return Table{t.data, at + int(t.number(at, 4, true))} }

// place returns where a field is, 0 if the table does not have it.
func (t Table) place(id int) int {
	if t.data == nil {
		return 0
	}
	vtable := t.at - int(t.number(t.at, 4, false))
	if 4+2*id+2 > int(t.number(vtable, 2, true)) {
		return 0
	}
	if offset := int(t.number(vtable+4+2*id, 2, true)); offset > 0 {
		return t.at + offset
	}
	return 0
}

// Int returns a signed field of 1, 2, 4 or 8 bytes, or what it is if the table does not have it.
func (t Table) Int(id, size int, missing int64) int64 {
	at := t.place(id)
	if at == 0 {
		return missing
	}
	return t.number(at, size, false)
}

// Bool returns a boolean field.
func (t Table) Bool(id int) bool { return t.Int(id, 1, 0) != 0 }

// Table returns a field that is a table; ok is false if there is none.
func (t Table) Table(id int) (field Table, ok bool) {
	at := t.place(id)
	if at == 0 {
		return Table{}, false
	}
	return t.follow(at), true
}

// list returns where the elements of a list begin, and how many there are.
func (t Table) list(id, size int) (begin, n int) {
	at := t.place(id)
	if at == 0 {
		return 0, 0
	}
	list := t.follow(at)
	length, begin := int(list.number(list.at, 4, true)), list.at+4
	if length > (len(t.data)-begin)/size {
		panic(ErrTable)
	}
	return begin, length
}

// Structs returns a list of structs or numbers of the given size, one after another.
func (t Table) Structs(id, size int) []byte {
	begin, n := t.list(id, size)
	return t.data[begin : begin+n*size]
}

// Text returns a string.
func (t Table) Text(id int) string { return string(t.Structs(id, 1)) }

// Tables returns a list of tables.
func (t Table) Tables(id int) []Table {
	begin, n := t.list(id, 4)
	list := make([]Table, n)
	for i := range list {
		list[i] = t.follow(begin + 4*i)
	}
	return list
}
