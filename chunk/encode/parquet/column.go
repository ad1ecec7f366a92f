package parquet

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// pageBytes is the size from which on a page ends, before compression.
const pageBytes = 1 << 20

// The levels of a column: a value that is there, in a column without and with lists. A list
// is a group that may be null, around a repeated group, around a required element.
const (
	presentValue   = 1
	emptyList      = 1
	presentElement = 2
)

// columnWriter encodes one column of a row group.
type columnWriter struct {
	column Column
	data   []byte // finished pages
	meta   chunkMeta
	bounds bounds

	// The current page.
	values      []byte
	definitions runs
	repetitions runs
	count       int // values, nulls included
}

// add adds a single value.
func (w *columnWriter) add(p parsed) {
	w.count++
	if p.null {
		w.meta.Nulls++
		w.definitions.add(0, 1)
		return
	}
	w.definitions.add(presentValue, 1)
	w.values = w.column.Type.appendPlain(w.values, p)
	w.bounds.add(w.column.Type, p)
	w.endPage(pageBytes)
}

// addJSON adds a value of a line. On an error it adds nothing.
func (w *columnWriter) addJSON(value []byte, buffer *[]byte) error {
	if !w.column.Type.isList() {
		p, err := w.column.Type.parse((*buffer)[:0], value)
		if err != nil {
			return err
		}
		if p.text != nil {
			*buffer = p.text
		}
		w.add(p)
		return nil
	}
	before, n := len(w.values), 0
	err := w.column.Type.eachElement(value, func(p parsed) {
		w.values = w.column.Type.element().appendPlain(w.values, p)
		n++
	})
	switch {
	case err != nil:
		w.values = w.values[:before]
		return err
	case string(value) == "null":
		w.addNull()
	case n == 0:
		w.addEmpty()
	default:
		w.addLevels(n)
	}
	return nil
}

// addTyped adds rows of raw values. valid reports which of them are there; nil means all.
func (w *columnWriter) addTyped(raw []byte, rows int, valid []bool) {
	size := w.column.rowBytes()
	for i := range rows {
		row := raw[i*size : (i+1)*size]
		switch {
		case valid != nil && !valid[i]:
			w.addNull()
		case w.column.Width == 0:
			w.add(parsed{bits: rawBits(row)})
		default:
			w.addList(row)
		}
	}
}

func (w *columnWriter) addNull() {
	w.count++
	w.meta.Nulls++
	w.definitions.add(0, 1)
	if w.column.isList() {
		w.repetitions.add(0, 1)
	}
}

// addEmpty adds a list without elements.
func (w *columnWriter) addEmpty() {
	w.count++
	w.repetitions.add(0, 1)
	w.definitions.add(emptyList, 1)
}

// addList adds a row of several values.
func (w *columnWriter) addList(row []byte) {
	w.values = append(w.values, row...)
	w.addLevels(w.column.Width)
}

// addLevels adds the levels of a list that is not empty, whose values have been added.
func (w *columnWriter) addLevels(width int) {
	w.count += width
	w.repetitions.add(0, 1)
	w.repetitions.add(1, width-1)
	w.definitions.add(presentElement, width)
	w.endPage(pageBytes)
}

func rawBits(row []byte) uint64 {
	switch len(row) {
	case 1:
		return uint64(row[0] & 1)
	case 4:
		return uint64(binary.LittleEndian.Uint32(row))
	}
	return binary.LittleEndian.Uint64(row)
}

// endPage ends the page if it has the given number of bytes.
func (w *columnWriter) endPage(least int) {
	if w.count == 0 || len(w.values) < least {
		return
	}
	var page []byte
	if w.column.isList() {
		page = w.repetitions.appendTo(page)
	}
	page = w.definitions.appendTo(page)
	if w.column.Type.element() == Bool {
		page = append(page, packBits(w.values)...)
	} else {
		page = append(page, w.values...)
	}
	packed := compress(page)
	header := pageHeader(w.count, len(page), packed)
	w.data = append(append(w.data, header...), packed...)
	w.meta.Values += int64(w.count)
	w.meta.Unpacked += int64(len(header) + len(page))
	w.values, w.count = w.values[:0], 0
}

// finish ends the last page.
func (w *columnWriter) finish() {
	w.endPage(math.MinInt)
	w.bounds.signZeros(w.column.Type)
	w.meta.Packed = int64(len(w.data))
	w.meta.Min, w.meta.Max = w.bounds.min, w.bounds.max
}

// pageHeader returns the header of a data page.
func pageHeader(values, unpacked int, packed []byte) []byte {
	const dataPage, plain, rle = 0, 0, 3
	t := new(thriftWriter)
	t.i32(1, dataPage)
	t.i32(2, int64(unpacked))
	t.i32(3, int64(len(packed)))
	t.i32(4, int64(int32(crc32.ChecksumIEEE(packed))))
	t.begin(5)
	t.i32(1, int64(values))
	t.i32(2, plain)
	t.i32(3, rle)
	t.i32(4, rle)
	t.end()
	t.end()
	return t.data
}
