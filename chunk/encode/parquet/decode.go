package parquet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// Group is a row group that EncodeGroup has written, decoded so that some of its rows can be
// replaced.
type Group struct {
	Rows    int
	columns [][]cell // of each column, by row
}

// cell is what a row has in a column.
type cell struct {
	levels []levels // in a column of lists, of all values; nil for null
	null   bool
	plain  []byte // the values as they are encoded
}

var errGroup = errors.New("the row group is damaged")

// DecodeGroup decodes a row group. meta is its description.
func (s Schema) DecodeGroup(data, meta []byte) (*Group, error) {
	var described groupMeta
	columns := s.all()
	if err := json.Unmarshal(meta, &described); err != nil || len(described.Columns) != len(columns) {
		return nil, errGroup
	}
	g := &Group{Rows: int(described.Rows)}
	for i, c := range columns {
		size := described.Columns[i].Packed
		if size < 0 || size > int64(len(data)) {
			return nil, errGroup
		}
		cells, err := c.decode(data[:size])
		if err == nil && len(cells) != g.Rows {
			err = errGroup
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		g.columns, data = append(g.columns, cells), data[size:]
	}
	if len(data) > 0 {
		return nil, errGroup
	}
	return g, nil
}

// decode decodes the pages of a column.
func (c Column) decode(data []byte) (cells []cell, err error) {
	for len(data) > 0 {
		var page []byte
		var count int
		if page, count, data, err = nextPage(data); err != nil {
			return nil, err
		}
		var repetitions []byte
		if c.isList() {
			if repetitions, page, err = pageLevels(page, count); err != nil {
				return nil, err
			}
		}
		definitions, page, err := pageLevels(page, count)
		if err != nil {
			return nil, err
		}
		if cells, err = c.appendCells(cells, repetitions, definitions, page); err != nil {
			return nil, err
		}
	}
	return cells, nil
}

// nextPage returns the content of the first page and the number of its values.
func nextPage(data []byte) (page []byte, count int, rest []byte, err error) {
	header := thriftReader{data: data}
	var numbers [5]int64 // of the fields 1 to 4 and of the first field of the fifth
	for i := range numbers {
		numbers[i] = header.number(i == 4)
	}
	header.skipAfterCount()
	size := numbers[2]
	if header.failed || size < 0 || size > int64(len(header.data)) || numbers[4] < 0 {
		return nil, 0, nil, errGroup
	}
	packed := header.data[:size]
	if int64(int32(crc32.ChecksumIEEE(packed))) != numbers[3] {
		return nil, 0, nil, errGroup
	}
	page, err = pageDecoder().DecodeAll(packed, nil)
	if err != nil || int64(len(page)) != numbers[1] {
		return nil, 0, nil, errGroup
	}
	return page, int(numbers[4]), header.data[size:], nil
}

var pageDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
})

// thriftReader reads a page header as pageHeader writes it.
type thriftReader struct {
	data   []byte
	failed bool
}

// number reads a field of 32 bits; nested: the struct that it is the first field of begins
// before it.
func (t *thriftReader) number(nested bool) int64 {
	if nested {
		t.expect(1<<4 | spec.ThriftStruct)
	}
	t.expect(1<<4 | spec.ThriftI32)
	return t.varint()
}

func (t *thriftReader) varint() int64 {
	value, n := binary.Varint(t.data)
	if n <= 0 {
		t.failed = true
		return 0
	}
	t.data = t.data[n:]
	return value
}

// skipAfterCount skips the encodings and the ends of the structs.
func (t *thriftReader) skipAfterCount() {
	for range 3 {
		t.expect(1<<4 | spec.ThriftI32)
		t.varint()
	}
	t.expect(0)
	t.expect(0)
}

func (t *thriftReader) expect(b byte) {
	if len(t.data) == 0 || t.data[0] != b {
		t.failed, t.data = true, nil
		return
	}
	t.data = t.data[1:]
}

// pageLevels reads the levels of a page.
func pageLevels(page []byte, count int) (list, rest []byte, err error) {
	if len(page) < 4 {
		return nil, nil, errGroup
	}
	size := int64(binary.LittleEndian.Uint32(page))
	page = page[4:]
	if size > int64(len(page)) {
		return nil, nil, errGroup
	}
	for runs := page[:size]; len(runs) > 0; {
		header, n := binary.Uvarint(runs)
		run := int64(header >> 1)
		if n <= 0 || header&1 != 0 || n == len(runs) || run > int64(count-len(list)) {
			return nil, nil, errGroup
		}
		for range run {
			list = append(list, runs[n])
		}
		runs = runs[n+1:]
	}
	if len(list) != count {
		return nil, nil, errGroup
	}
	return list, page[size:], nil
}

// appendCells splits the values of a page.
func (c Column) appendCells(cells []cell, repetitions, definitions, values []byte) ([]cell, error) {
	base := c.Type.base()
	bits := 0
	for i, level := range definitions {
		at := levels{definition: level}
		if repetitions != nil {
			at.repetition = repetitions[i]
		}
		if level > c.present() || at.repetition > 0 && (len(cells) == 0 || level <= at.repetition) {
			return nil, errGroup
		}
		if at.repetition == 0 {
			cells = append(cells, cell{null: level == 0})
		}
		last := &cells[len(cells)-1]
		if c.isList() && level > 0 {
			last.levels = append(last.levels, at)
		}
		if level < c.present() {
			continue
		}
		if base == Bool {
			if bits/8 >= len(values) {
				return nil, errGroup
			}
			last.plain = append(last.plain, values[bits/8]>>(bits%8)&1)
			bits++
			continue
		}
		size := base.plainSize()
		if size == 0 { // a text after its length
			if len(values) < 4 {
				return nil, errGroup
			}
			size = 4 + int(binary.LittleEndian.Uint32(values))
		}
		if size > len(values) {
			return nil, errGroup
		}
		if last.plain == nil {
			last.plain = values[:size:size]
		} else {
			last.plain = append(last.plain, values[:size]...)
		}
		values = values[size:]
	}
	if base == Bool {
		values = values[min(len(values), (bits+7)/8):]
	}
	if len(values) > 0 {
		return nil, errGroup
	}
	return cells, nil
}

// Piece is some rows of a row group: those of an older one, or new ones.
type Piece struct {
	Old      *Group
	From, To int // rows of Old
	New      Rows
}

// EncodePieces is EncodeGroup for rows that come from several places.
func (s Schema) EncodePieces(w io.Writer, pieces []Piece) (meta []byte, n int64, err error) {
	columns := s.all()
	writers := make([]*columnWriter, len(columns))
	for i, c := range columns {
		writers[i] = newColumnWriter(c)
	}
	rows := 0
	for _, p := range pieces {
		if p.Old == nil {
			if err := s.addRows(writers, p.New); err != nil {
				return nil, 0, err
			}
			rows += p.New.Count
			continue
		}
		for i, w := range writers {
			for _, c := range p.Old.columns[i][p.From:p.To] {
				w.addCell(c)
			}
		}
		rows += p.To - p.From
	}
	return writeGroup(w, writers, rows)
}

// addCell adds what a row of another group has.
func (w *columnWriter) addCell(c cell) {
	switch {
	case c.null:
		w.addNull()
	case !w.column.isList():
		w.add(w.column.Type.decodePlain(c.plain))
	default:
		w.values = append(w.values, c.plain...)
		w.addLevels(c.levels)
	}
}

// decodePlain is the inverse of appendPlain.
func (t Type) decodePlain(plain []byte) parsed {
	switch t.physical() {
	case spec.PhysicalBool:
		return parsed{bits: uint64(plain[0])}
	case spec.PhysicalInt32, spec.PhysicalFloat:
		return parsed{bits: uint64(binary.LittleEndian.Uint32(plain))}
	case spec.PhysicalInt64, spec.PhysicalDouble:
		return parsed{bits: binary.LittleEndian.Uint64(plain)}
	case spec.PhysicalFixed:
		return parsed{text: plain}
	}
	return parsed{text: plain[4:]}
}
