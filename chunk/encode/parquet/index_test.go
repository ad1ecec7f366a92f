package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// TestIndex: the index finds every page, knows its bounds, and columns that repeat have
// dictionaries.
func TestIndex(t *testing.T) {
	const rows = 300_000
	w := workload{schema: parquet.Schema{Columns: []parquet.Column{
		{Name: "id", Type: parquet.Int64}, {Name: "label", Type: parquet.String}, {Name: "nothing", Type: parquet.Float64}, {Name: "late", Type: parquet.String},
	}}, rows: rowGroup{Count: rows}}
	for i := range rows {
		w.rows.Lines = append(w.rows.Lines, fmt.Appendf(nil, `{"id":%d,"label":"label %d","late":"%040d"}`, i, i%100, max(0, i-100_000)))
	}
	s := sample{schema: w.schema, groups: []rowGroup{w.rows, {Count: 3, Lines: w.rows.Lines[:3]}}}
	data := s.file(t)
	footer, err := parquet.ReadFooter(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	mixed := []int32{parquet.EncodingRLE, parquet.EncodingRLEDictionary, parquet.EncodingPlain}
	for g, group := range footer.Groups {
		for i, want := range [][]int32{{parquet.EncodingRLE, parquet.EncodingPlain}, mixed, {parquet.EncodingRLE, parquet.EncodingPlain}, mixed} {
			c := group.Columns[i]
			if got := c.Meta.Encodings; g == 0 && !slices.Equal(got, want) || (c.Meta.DictionaryOffset > 0) != slices.Contains(got, parquet.EncodingRLEDictionary) {
				t.Errorf("column %s has the encodings %d, not %d", c.Meta.Path, got, want)
			}
			checkIndex(t, data, c, group.Rows)
		}
	}
	if pages := checkIndex(t, data, footer.Groups[0].Columns[0], rows); len(pages.Pages) < 2 {
		t.Errorf("%d pages", len(pages.Pages))
	}
}

// checkIndex checks the indexes of a column.
func checkIndex(t *testing.T, data []byte, c parquet.ColumnChunk, rows int64) (pages parquet.OffsetIndex) {
	t.Helper()
	var index parquet.ColumnIndex
	for _, read := range []struct {
		at   int64
		size int32
		into any
	}{{c.OffsetIndexOffset, c.OffsetIndexBytes, &pages}, {c.ColumnIndexOffset, c.ColumnIndexBytes, &index}} {
		if n, err := parquet.Unmarshal(data[read.at:read.at+int64(read.size)], read.into); err != nil || n != int(read.size) {
			t.Fatalf("%d of %d bytes, %v", n, read.size, err)
		}
	}
	end, values, nulls := c.Meta.DataOffset, int64(0), int64(0)
	for i, p := range pages.Pages {
		var h parquet.PageHeader
		n, err := parquet.Unmarshal(data[p.Offset:], &h)
		if err != nil || p.Offset != end || h.Kind != parquet.DataPage || int32(n)+h.Packed != p.Bytes || p.Row != values {
			t.Fatalf("column %s: page %d is %+v, %v; a page begins at %d with row %d", c.Meta.Path, i, h, err, end, values)
		}
		end, values = end+int64(p.Bytes), values+int64(h.Data.Values)
		nulls += index.Nulls[i]
		if index.NullPages[i] != (index.Nulls[i] == int64(h.Data.Values)) || index.NullPages[i] != (len(index.Min[i]) == 0) {
			t.Errorf("column %s: page %d has %d nulls, null: %t", c.Meta.Path, i, index.Nulls[i], index.NullPages[i])
		}
		if c.Meta.Path[0] == "id" {
			least, most := binary.LittleEndian.Uint64(index.Min[i]), binary.LittleEndian.Uint64(index.Max[i])
			if int64(least) != p.Row || int64(most) != values-1 || index.Order != 1 {
				t.Errorf("page %d has %d to %d, order %d", i, least, most, index.Order)
			}
		}
	}
	if end != c.Meta.Begin()+c.Meta.Packed || values != rows || nulls != c.Meta.Statistics.Nulls || len(index.Min) != len(pages.Pages) {
		t.Errorf("column %s: %d values, %d nulls up to offset %d, %d bounds", c.Meta.Path, values, nulls, end, len(index.Min))
	}
	return pages
}

// FuzzRows: whatever bytes are added as rows, they are rows or an error.
func FuzzRows(f *testing.F) {
	s := newSample(1)
	row, err := s.schema.Rows().Append(nil, s.groups[0].Lines[0], nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(row)
	f.Fuzz(func(t *testing.T, rows []byte) {
		g := NewGroup(s.schema)
		if g.Add(rows) == nil {
			g.Finish()
		}
	})
}
