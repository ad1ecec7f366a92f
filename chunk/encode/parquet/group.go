package parquet

import "github.com/gpurun/gpurun/chunk/parquet"

// Group encodes a row group. It holds the encoded pages, and a page of each column.
type Group struct {
	columns []*columnWriter
	rows    int64
}

// NewGroup begins a row group.
func NewGroup(s parquet.Schema) *Group {
	g, shared := new(Group), new(scratch)
	for _, l := range s.Leaves() {
		g.columns = append(g.columns, newColumnWriter(l, shared))
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

// Finish returns the row group, in pieces, and its description, for Tail.
func (g *Group) Finish() (data [][]byte, meta []byte) {
	at := int64(len(parquet.Magic))
	described := groupMeta{Group: parquet.RowGroup{Rows: g.rows, Offset: at}}
	for _, c := range g.columns {
		c.meta.DataOffset = at
		dictionary := c.finish()
		for _, piece := range dictionary {
			c.meta.DictionaryOffset = at
			c.meta.DataOffset += int64(len(piece))
		}
		for i := range c.pages.Pages {
			c.pages.Pages[i].Offset += c.meta.DataOffset
		}
		at += c.meta.Packed
		described.Group.Unpacked += c.meta.Unpacked
		described.Group.Columns = append(described.Group.Columns, parquet.ColumnChunk{Meta: c.meta})
		described.Bounds, described.Pages = append(described.Bounds, c.index), append(described.Pages, c.pages)
		data = append(append(data, dictionary...), c.data...)
	}
	described.Group.Packed = at - described.Group.Offset
	return data, parquet.Marshal(described)
}
