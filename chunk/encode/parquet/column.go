package parquet

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// pageBytes is the size from which on a page ends, before compression.
const pageBytes = 1 << 20

// levels say where a value is in its row. A list is a group around a repeated group, around a
// required element, which may be a list again; the outermost group may be null.
type levels struct {
	// repetition is 0 for the first value of a row, else which list has another element: 1 for
	// the outermost.
	repetition byte
	// definition is 0 for null, n if the n-th list is empty, and one more than there are lists
	// for a value.
	definition byte
}

// present returns the level of definition of a value.
func (c Column) present() byte { return byte(c.depth() + 1) }

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

	row   []run    // the levels of repetition of a typed row
	added []levels // scratch: of a list
}

func newColumnWriter(c Column) *columnWriter {
	return &columnWriter{column: c, row: c.repetitions()}
}

// repetitions returns the levels of repetition of a typed row with several values.
func (c Column) repetitions() []run {
	dimensions := c.Dimensions
	if len(dimensions) == 0 {
		dimensions = []int{c.Width}
	}
	var list []run
	add := func(level byte) {
		if n := len(list); n > 0 && list[n-1].value == level {
			list[n-1].count++
		} else {
			list = append(list, run{level, 1})
		}
	}
	for i := range c.Width {
		level, size := byte(len(dimensions)), 1 // of the list that continues
		for k := len(dimensions) - 1; k >= 0; k-- {
			if size *= dimensions[k]; i%size != 0 {
				break
			}
			level--
		}
		add(level)
	}
	return list
}

// add adds a single value.
func (w *columnWriter) add(p parsed) {
	w.count++
	if p.null {
		w.meta.Nulls++
		w.definitions.add(0, 1)
		return
	}
	w.definitions.add(w.column.present(), 1)
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
	if string(value) == "null" {
		w.addNull()
		return nil
	}
	before, base := len(w.values), w.column.Type.base()
	w.added = w.added[:0]
	err := w.column.Type.eachElement(value, func(p parsed, at levels) {
		if !p.null {
			w.values = base.appendPlain(w.values, p)
		}
		w.added = append(w.added, at)
	})
	if err != nil {
		w.values = w.values[:before]
		return err
	}
	w.addLevels(w.added)
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

// addList adds a row of several values.
func (w *columnWriter) addList(row []byte) {
	w.values = append(w.values, row...)
	w.count += w.column.Width
	for _, r := range w.row {
		w.repetitions.add(r.value, r.count)
	}
	w.definitions.add(w.column.present(), w.column.Width)
	w.endPage(pageBytes)
}

// addLevels adds the levels of a list whose values have been added.
func (w *columnWriter) addLevels(list []levels) {
	w.count += len(list)
	for _, at := range list {
		w.repetitions.add(at.repetition, 1)
		w.definitions.add(at.definition, 1)
	}
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
	if w.column.Type.base() == Bool {
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
	t := new(thriftWriter)
	t.i32(spec.PageKind, spec.DataPage)
	t.i32(spec.PageUnpacked, int64(unpacked))
	t.i32(spec.PagePacked, int64(len(packed)))
	t.i32(spec.PageSum, int64(int32(crc32.ChecksumIEEE(packed))))
	t.begin(spec.PageData)
	t.i32(spec.PageValues, int64(values))
	t.i32(spec.PageEncoding, spec.EncodingPlain)
	t.i32(spec.PageDefinitionEncoding, spec.EncodingRLE)
	t.i32(spec.PageRepetitionEncoding, spec.EncodingRLE)
	t.end()
	t.end()
	return t.data
}
