package arrow

import (
	"encoding/binary"
	"errors"

	"github.com/gpurun/gpurun/chunk/parquet"
)

var errRow = errors.New("the bytes are not rows of the table")

// columnWriter encodes one column of a record batch, or a member of a struct.
type columnWriter struct {
	leaf   parquet.Leaf
	typ    parquet.Type // of a single value
	size   int          // of a value in a row, 0 if it differs
	width  int          // of a value here, 0 if it differs
	same   bool         // values are the same here as in a row
	isBool bool
	levels []level // the lists around a value, from the outermost

	structs validity // of the structs, if this is their first member
	valid   validity
	count   int // values
	values  []byte
	bools   bits
	ends    []byte // offsets of text
}

// level is the lists of one level.
type level struct {
	size    int // of each, 0 if it differs
	count   int // of elements
	offsets []byte
}

// bits is a bitmap.
type bits struct{ data []byte }

// add sets the bit with the given number, which is one more than the last.
func (b *bits) add(number int, bit bool) {
	if number%8 == 0 {
		b.data = append(b.data, 0)
	}
	if bit {
		b.data[number/8] |= 1 << (number % 8)
	}
}

// validity says which values of a column are not null.
type validity struct {
	rows, nulls int
	bits        bits
}

func (v *validity) add(valid bool) {
	v.bits.add(v.rows, valid)
	v.rows++
	if !valid {
		v.nulls++
	}
}

// bitmap returns the bits, none if no value is null.
func (v *validity) bitmap() []byte {
	if v.nulls == 0 {
		return nil
	}
	return v.bits.data
}

func newColumnWriter(c parquet.Leaf) *columnWriter {
	w := &columnWriter{leaf: c, typ: c.Type.Base(), levels: make([]level, c.Depth())}
	_, w.size = c.Leaf()
	w.isBool, w.width = w.typ == parquet.Bool, w.typ.ArrowSize()
	w.same = w.width > 0 && w.typ.SameInArrow()
	for i, size := range c.Shape() {
		w.levels[i].size = size
	}
	for i := range w.levels {
		if w.levels[i].size == 0 {
			w.levels[i].offsets = make([]byte, 4)
		}
	}
	if w.width == 0 && !w.isBool {
		w.ends = make([]byte, 4)
	}
	return w
}

// add adds what a row, at the beginning of data, has in the column, and returns what follows it.
func (w *columnWriter) add(data []byte) (rest []byte, err error) {
	if len(data) == 0 {
		return nil, errRow
	}
	exists := data[0] >= w.leaf.Exists()
	if w.leaf.First {
		w.structs.add(data[0] > 0)
	}
	w.valid.add(exists)
	if !exists {
		w.empty(0, 1)
		return data[1:], nil
	}
	return w.list(data[1:], 0)
}

// empty adds n lists or values that are null, at a level. Lists of one size have their elements nevertheless.
func (w *columnWriter) empty(at, n int) {
	if at == len(w.levels) {
		for range n {
			w.value(make([]byte, w.size))
		}
		return
	}
	l := &w.levels[at]
	if l.size > 0 {
		l.count += n * l.size
		w.empty(at+1, n*l.size)
		return
	}
	for range n {
		l.offsets = binary.LittleEndian.AppendUint32(l.offsets, uint32(l.count))
	}
}

// list adds a list at a level, or a single value in no list.
func (w *columnWriter) list(data []byte, at int) (rest []byte, err error) {
	if at == len(w.levels) {
		return w.add1(data)
	}
	if len(data) < 4 {
		return nil, errRow
	}
	l, n := &w.levels[at], int(binary.LittleEndian.Uint32(data))
	if data = data[4:]; l.size > 0 && n != l.size {
		return nil, errRow
	}
	l.count += n
	if l.size == 0 {
		l.offsets = binary.LittleEndian.AppendUint32(l.offsets, uint32(l.count))
	}
	if at+1 == len(w.levels) && w.same { // a vector is copied
		if n > len(data)/w.size {
			return nil, errRow
		}
		w.values = append(w.values, data[:n*w.size]...)
		w.count += n
		return data[n*w.size:], nil
	}
	for range n {
		if data, err = w.list(data, at+1); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// add1 adds a single value.
func (w *columnWriter) add1(data []byte) (rest []byte, err error) {
	size := w.size
	if size == 0 {
		if len(data) < 4 {
			return nil, errRow
		}
		size, data = int(binary.LittleEndian.Uint32(data)), data[4:]
	}
	if size > len(data) {
		return nil, errRow
	}
	w.value(data[:size])
	return data[size:], nil
}

// value adds the bytes of a value.
func (w *columnWriter) value(v []byte) {
	switch {
	case w.isBool:
		w.bools.add(w.count, v[0] != 0)
	case w.same:
		w.values = append(w.values, v...)
	case w.width > 0:
		w.values = w.typ.AppendArrow(w.values, v)
	default:
		w.values = append(w.values, v...)
		w.ends = binary.LittleEndian.AppendUint32(w.ends, uint32(len(w.values)))
	}
	w.count++
}

// finish adds the column to a record batch: each level, and the values. A struct precedes its first member.
func (w *columnWriter) finish(b *batch) {
	if w.leaf.First {
		b.node(w.structs.rows, w.structs.nulls)
		b.buffer(w.structs.bitmap())
	}
	rows, nulls, valid := w.valid.rows, w.valid.nulls, w.valid.bitmap()
	for _, l := range w.levels {
		b.node(rows, nulls)
		b.buffer(valid)
		if l.size == 0 {
			b.buffer(l.offsets)
		}
		rows, nulls, valid = l.count, 0, nil
	}
	b.node(rows, nulls)
	b.buffer(valid)
	switch {
	case w.isBool:
		b.buffer(w.bools.data)
	case w.width > 0:
		b.buffer(w.values)
	default:
		b.buffer(w.ends)
		b.buffer(w.values)
	}
}
