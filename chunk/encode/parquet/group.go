package parquet

import (
	"encoding/json"
	"io"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// Group encodes a row group. It holds the encoded pages, and a page of each column.
type Group struct {
	columns []*columnWriter
	rows    int64
}

// NewGroup begins a row group.
func NewGroup(s parquet.Schema) *Group {
	g := new(Group)
	for _, c := range s.All() {
		g.columns = append(g.columns, newColumnWriter(c))
	}
	return g
}

// Add adds rows, one after another.
func (g *Group) Add(rows []byte) (err error) {
	for ; len(rows) > 0; g.rows++ {
		for _, c := range g.columns {
			if rows, err = c.add(rows, g.rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// Finish writes the row group to w and returns its description, for Tail, as JSON.
func (g *Group) Finish(w io.Writer) (meta []byte, err error) {
	at := int64(len(parquet.Magic))
	described := groupMeta{Group: parquet.RowGroup{Rows: g.rows, Offset: at}}
	for _, c := range g.columns {
		c.meta.DataOffset = at
		dictionary := c.finish()
		for _, data := range dictionary {
			c.meta.DictionaryOffset = at
			c.meta.DataOffset += int64(len(data))
		}
		for i := range c.pages.Pages {
			c.pages.Pages[i].Offset += c.meta.DataOffset
		}
		at += c.meta.Packed
		described.Group.Unpacked += c.meta.Unpacked
		described.Group.Columns = append(described.Group.Columns, parquet.ColumnChunk{Meta: c.meta})
		described.Bounds, described.Pages = append(described.Bounds, c.index), append(described.Pages, c.pages)
		for _, data := range append(dictionary, c.data...) {
			if _, err := w.Write(data); err != nil {
				return nil, err
			}
		}
	}
	described.Group.Packed = at - described.Group.Offset
	return json.Marshal(parquet.Marshal(described))
}
