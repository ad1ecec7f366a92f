package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/gpurun/gpurun/chunk/parquet"
)

const (
	// pageBytes is the size of the values with which a page ends.
	pageBytes = 1 << 20
	// pageValues limits the values of a page.
	pageValues = 1 << 20
)

var errRow = errors.New("the bytes are not rows of the table")

// columnWriter encodes one column of a row group, or a member of a struct.
//
// Each value has levels. The level of repetition is 0 for the first value of a row, else which
// list continues with it: 1 for the outermost. The level of definition is 0 for null, n if the
// n-th list is empty, and one more than there are lists for a value. That of a struct's member is in
// its rows.
type columnWriter struct {
	column parquet.Leaf
	size   int // of a value, 0 if it differs
	depth  uint32
	exists uint32   // the level of definition of a value
	data   [][]byte // finished pages
	meta   parquet.ColumnMeta
	bounds bounds
	index  parquet.ColumnIndex
	pages  parquet.OffsetIndex
	dict   *dictionary // nil if it does not pay

	// The current page.
	values                   []byte   // plain
	indexes                  []uint32 // of the values in the dictionary
	definitions, repetitions hybrid
	count                    int // values, nulls included
	nulls                    int64
	first                    int64 // row
	page                     bounds
	*scratch
}

// scratch is memory for a page, before and after it is compressed, which the columns of a row group share.
type scratch struct{ plain, packed []byte }

func newColumnWriter(c parquet.Leaf, s *scratch) *columnWriter {
	w := &columnWriter{column: c, scratch: s, depth: uint32(c.Depth()), bounds: newBounds(c), page: newBounds(c)}
	w.exists = w.depth + uint32(c.Exists())
	w.meta = parquet.ColumnMeta{
		Encodings: []int32{parquet.EncodingRLE}, Path: []string{c.Name}, Codec: parquet.CodecZstd, Statistics: new(parquet.Statistics),
	}
	w.meta.Physical, w.size = c.Leaf()
	w.definitions.width, w.repetitions.width = widthOf(w.exists), widthOf(w.depth)
	if w.meta.Physical != parquet.PhysicalBool {
		w.dict = &dictionary{places: make(map[string]uint32)}
	}
	if c.Member != "" {
		w.meta.Path = append(w.meta.Path, c.Member)
	}
	for range w.depth {
		w.meta.Path = append(w.meta.Path, "list", "element")
	}
	return w
}

// add adds what a row, at the beginning of data, has in the column, and returns what follows it.
func (w *columnWriter) add(data []byte, row int64) (rest []byte, err error) {
	if len(w.values) >= pageBytes || w.count >= pageValues {
		w.endPage(row)
	}
	switch {
	case len(data) == 0:
		return nil, errRow
	case data[0] < w.column.Exists():
		w.nulls++
		w.level(0, uint32(data[0]))
		return data[1:], nil
	}
	return w.list(data[1:], 1, 0)
}

// level adds the levels of something without a value.
func (w *columnWriter) level(repetition, definition uint32) {
	w.count++
	w.repetitions.add(repetition, 1)
	w.definitions.add(definition, 1)
}

// list adds a list, the outermost of which is number 1, or a single value in no list.
func (w *columnWriter) list(data []byte, number, repetition uint32) (rest []byte, err error) {
	n := 1
	if w.depth > 0 {
		if len(data) < 4 {
			return nil, errRow
		}
		n, data = int(binary.LittleEndian.Uint32(data)), data[4:]
	}
	switch {
	case n == 0:
		w.level(repetition, number)
		return data, nil
	case number >= w.depth:
		w.count += n
		w.repetitions.add(repetition, 1)
		w.repetitions.add(w.depth, n-1)
		w.definitions.add(w.exists, n)
		return w.addValues(data, n)
	}
	for range n {
		if data, err = w.list(data, number+1, repetition); err != nil {
			return nil, err
		}
		repetition = number
	}
	return data, nil
}

// addValues adds n values.
func (w *columnWriter) addValues(data []byte, n int) (rest []byte, err error) {
	if !w.dict.open() && w.depth > 0 && w.size > 0 {
		if n > len(data)/w.size {
			return nil, errRow
		}
		w.values = append(w.values, data[:n*w.size]...)
		return data[n*w.size:], nil
	}
	for range n {
		size, prefix := w.size, 0
		if size == 0 && len(data) >= 4 {
			size, prefix = 4+int(binary.LittleEndian.Uint32(data)), 4
		}
		if size == 0 || size > len(data) {
			return nil, errRow
		}
		w.values = append(w.values, data[:size]...)
		w.page.add(data[prefix:size])
		if w.dict.open() {
			w.indexes = append(w.indexes, w.dict.index(data[:size]))
			if len(w.indexes) == dictionaryTrial && !w.dict.used && len(w.dict.places) > dictionaryTrial*7/8 {
				w.dict = nil
			}
		}
		data = data[size:]
	}
	return data, nil
}

// endPage ends the page. The next one begins with the given row.
func (w *columnWriter) endPage(next int64) {
	page := w.plain[:0]
	if w.depth > 0 {
		page = w.repetitions.appendTo(page, true)
	}
	page = w.definitions.appendTo(page, true)
	if w.dict != nil && !w.dict.used && !w.dict.pays(len(w.values), len(w.indexes)) {
		w.dict = nil
	}
	encoding := parquet.EncodingPlain
	switch {
	case w.dict.open():
		encoding = parquet.EncodingRLEDictionary
		page = w.dict.appendIndexes(page, w.indexes)
	case w.meta.Physical == parquet.PhysicalBool:
		page = appendBits(page, w.values)
	default:
		page = append(page, w.values...)
	}
	offset := w.meta.Packed
	w.data = append(w.data, w.pack(page, encoding, parquet.PageHeader{Kind: parquet.DataPage, Data: &parquet.DataHeader{
		Values: int32(w.count), Encoding: encoding, DefinitionEncoding: parquet.EncodingRLE, RepetitionEncoding: parquet.EncodingRLE,
	}})...)
	w.plain = page
	w.pages.Pages = append(w.pages.Pages, parquet.PageLocation{Offset: offset, Bytes: int32(w.meta.Packed - offset), Row: w.first})
	w.bounds.join(w.page)
	w.page.signZeros()
	w.index.Min, w.index.Max = append(w.index.Min, w.page.min), append(w.index.Max, w.page.max)
	w.index.NullPages, w.index.Nulls = append(w.index.NullPages, int64(w.count) == w.nulls), append(w.index.Nulls, w.nulls)
	w.meta.Values += int64(w.count)
	w.meta.Statistics.Nulls += w.nulls
	w.values, w.indexes, w.count, w.nulls, w.first, w.page = w.values[:0], w.indexes[:0], 0, 0, next, newBounds(w.column)
}

// finish ends the last page, and returns the dictionary's page if there is one.
func (w *columnWriter) finish() (dictionary [][]byte) {
	if w.count > 0 || len(w.pages.Pages) == 0 {
		w.endPage(0)
	}
	if w.dict != nil {
		dictionary = w.pack(w.dict.values, parquet.EncodingPlain, parquet.PageHeader{Kind: parquet.DictionaryPage,
			Dictionary: &parquet.DictionaryHeader{Values: int32(len(w.dict.places)), Encoding: parquet.EncodingPlain}})
	}
	w.bounds.signZeros()
	w.meta.Statistics.Min, w.meta.Statistics.Max = w.bounds.min, w.bounds.max
	if w.bounds.unknown {
		w.index = parquet.ColumnIndex{}
	} else if w.bounds.ascend(w.index) {
		w.index.Order = 1
	}
	return dictionary
}

// pack compresses a page, and returns its header and its content.
func (w *columnWriter) pack(page []byte, encoding int32, h parquet.PageHeader) [][]byte {
	w.packed = encoder().EncodeAll(page, w.packed[:0])
	packed := bytes.Clone(w.packed)
	sum := int32(crc32.ChecksumIEEE(packed))
	h.Unpacked, h.Packed, h.Sum = int32(len(page)), int32(len(packed)), &sum
	header := parquet.Marshal(h)
	w.meta.Unpacked += int64(len(header) + len(page))
	w.meta.Packed += int64(len(header) + len(packed))
	if !slices.Contains(w.meta.Encodings, encoding) {
		w.meta.Encodings = append(w.meta.Encodings, encoding)
	}
	return [][]byte{header, packed}
}
