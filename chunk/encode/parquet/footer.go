package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// Head is the first bytes of a file.
const Head = parquet.Magic

// groupMeta describes a row group until its file is complete. Offsets count as if it were the first row
// group of a file.
type groupMeta struct {
	Group  parquet.RowGroup      `id:"1"`
	Bounds []parquet.ColumnIndex `id:"2"` // of each column; without pages if they are unknown
	Pages  []parquet.OffsetIndex `id:"3"`
}

// decode returns the description, with the offsets of the place.
func decode(p parquet.Placed) (m groupMeta, err error) {
	_, err = parquet.Unmarshal(p.Meta, &m)
	m.move(p.Offset - int64(len(Head)))
	if err == nil && (len(m.Bounds) != len(m.Group.Columns) || len(m.Pages) != len(m.Group.Columns)) {
		err = fmt.Errorf("%d columns, but indexes of %d and %d", len(m.Group.Columns), len(m.Bounds), len(m.Pages))
	}
	for _, c := range m.Group.Columns {
		if err == nil && c.Meta.Statistics == nil { // all that gpurun writes have some
			err = errors.New("a column without statistics")
		}
	}
	return m, err
}

// Size returns the rows of the row group, and its bytes in the file.
func Size(p parquet.Placed) (rows, size int64, err error) {
	m, err := decode(p)
	return m.Group.Rows, m.Group.Packed, err
}

// move adds to all offsets.
func (m *groupMeta) move(by int64) {
	m.Group.Offset += by
	for i := range m.Group.Columns {
		meta := &m.Group.Columns[i].Meta
		meta.DataOffset += by
		if meta.DictionaryOffset > 0 {
			meta.DictionaryOffset += by
		}
	}
	for _, index := range m.Pages {
		for i := range index.Pages {
			index.Pages[i].Offset += by
		}
	}
}

// createdBy does not name the version: a job may be resumed by another one.
const createdBy = "gpurun version 1.0.0"

// Tail returns the end of a file with the given row groups: the index of its pages, and the footer.
// The types of Arrow are the same in all parts of a folder, whatever each of them contains.
func Tail(s parquet.Schema, groups []parquet.Placed, isPart bool) ([]byte, error) {
	columns := s.Leaves()
	footer := parquet.FileMetaData{Version: 1, Schema: s.Elements(), CreatedBy: createdBy}
	nulls := make([]int64, len(columns))
	var tail []byte
	at := int64(len(Head))
	decoded := make([]groupMeta, len(groups))
	for i, g := range groups {
		m, err := decode(g)
		if err == nil && len(m.Group.Columns) != len(columns) {
			err = fmt.Errorf("%d columns, not %d", len(m.Group.Columns), len(columns))
		}
		if err != nil {
			return nil, fmt.Errorf("row group %d: %w", i, err)
		}
		for k, c := range m.Group.Columns {
			nulls[k] += c.Meta.Statistics.Nulls
		}
		decoded[i], at = m, m.Group.Offset+m.Group.Packed
		footer.Rows += m.Group.Rows
		footer.Groups = append(footer.Groups, m.Group)
	}
	place := func(index any) (offset int64, size int32) {
		offset, before := at+int64(len(tail)), len(tail)
		tail = append(tail, parquet.Marshal(index)...)
		return offset, int32(len(tail) - before)
	}
	for _, pages := range []bool{false, true} { // the indexes of bounds are together
		for _, m := range decoded {
			for k := range m.Group.Columns {
				if c := &m.Group.Columns[k]; pages {
					c.OffsetIndexOffset, c.OffsetIndexBytes = place(m.Pages[k])
				} else if len(m.Bounds[k].NullPages) > 0 {
					c.ColumnIndexOffset, c.ColumnIndexBytes = place(m.Bounds[k])
				}
			}
		}
	}
	footer.KeyValues = keyValues(s, func(column int) bool { return !isPart && nulls[column] == 0 })
	for range columns {
		footer.ColumnOrders = append(footer.ColumnOrders, parquet.ColumnOrder{ByType: &parquet.Empty{}})
	}
	data := parquet.Marshal(footer)
	if len(data) > math.MaxInt32 {
		return nil, fmt.Errorf("the footer of %d row groups is too long", len(groups))
	}
	tail = binary.LittleEndian.AppendUint32(append(tail, data...), uint32(len(data)))
	return append(tail, parquet.Magic...), nil
}

// keyValues describes all columns for programs that use Arrow, too: there, vectors of a full column, without
// nulls, have a fixed size.
func keyValues(s parquet.Schema, full func(column int) bool) []parquet.KeyValue {
	return append(s.Metadata(), parquet.KeyValue{Key: "ARROW:schema", Value: s.Arrow(full)})
}

// Fits reports whether a file has the columns of a schema.
func Fits(r io.ReaderAt, size int64, s parquet.Schema) (bool, error) {
	footer, err := parquet.ReadFooter(r, size)
	if err != nil {
		return false, err
	}
	is, want := parquet.FileMetaData{Schema: footer.Schema}, parquet.FileMetaData{Schema: s.Elements()}
	return bytes.Equal(parquet.Marshal(is), parquet.Marshal(want)), nil
}

// ReadGroups returns the row groups of a file that this package has written.
func ReadGroups(r io.ReaderAt, size int64) (list []parquet.Placed, err error) {
	footer, err := parquet.ReadFooter(r, size)
	if err != nil {
		return nil, err
	}
	for _, g := range footer.Groups {
		m, offset := groupMeta{Group: g}, g.Offset
		for i := range m.Group.Columns {
			c := &m.Group.Columns[i]
			var bounds parquet.ColumnIndex
			var pages parquet.OffsetIndex
			if err = readIndex(r, size, c.ColumnIndexOffset, c.ColumnIndexBytes, &bounds); err == nil {
				err = readIndex(r, size, c.OffsetIndexOffset, c.OffsetIndexBytes, &pages)
			}
			if err != nil {
				return nil, err
			}
			m.Bounds, m.Pages = append(m.Bounds, bounds), append(m.Pages, pages)
			*c = parquet.ColumnChunk{Meta: c.Meta}
		}
		m.move(int64(len(Head)) - offset)
		list = append(list, parquet.Placed{Offset: offset, Meta: parquet.Marshal(m)})
	}
	return list, nil
}

func readIndex(r io.ReaderAt, size, at int64, length int32, index any) error {
	if length == 0 {
		return nil
	}
	if length < 0 || at < 0 || at > size-int64(length) {
		return fmt.Errorf("the index of pages at offset %d is outside the file", at)
	}
	data := make([]byte, length)
	if _, err := r.ReadAt(data, at); err != nil {
		return err
	}
	_, err := parquet.Unmarshal(data, index)
	return err
}
