package parquet

import (
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// checkFooter rejects a footer that contradicts itself or the size of the file.
func checkFooter(m *parquet.FileMetaData, leaves int, size int64) error {
	rows := int64(0)
	for i := range m.Groups {
		if err := checkGroup(&m.Groups[i], size, leaves); err != nil {
			return fmt.Errorf("row group %d: %w", i, err)
		}
		if rows += m.Groups[i].Rows; rows < 0 {
			return errors.New("the numbers of rows overflow")
		}
	}
	if rows != m.Rows {
		return fmt.Errorf("the footer counts %d rows, but its row groups %d", m.Rows, rows)
	}
	return nil
}

func checkGroup(g *parquet.RowGroup, size int64, leaves int) error {
	if g.Rows < 0 {
		return fmt.Errorf("%d rows", g.Rows)
	}
	if len(g.Columns) != leaves {
		return fmt.Errorf("%d columns, but the schema has %d", len(g.Columns), leaves)
	}
	for i := range g.Columns {
		c, end := &g.Columns[i].Meta, size-parquet.FooterEnd
		switch begin := c.Begin(); {
		case g.Columns[i].Path != "":
			return fmt.Errorf("column %d is in another file", i)
		case g.Columns[i].Encryption != nil || g.Columns[i].EncryptedMeta != nil:
			return fmt.Errorf("column %d is encrypted", i)
		case c.Values < 0 || c.Packed < 0 || c.Unpacked < 0 || begin < 0 || c.DataOffset < 0:
			return fmt.Errorf("column %d has a negative size", i)
		case begin > end || c.Packed > end-begin || c.DataOffset > end:
			return fmt.Errorf("column %d ends after the end of the file", i)
		case c.Values < g.Rows:
			return fmt.Errorf("column %d has %d values for %d rows", i, c.Values, g.Rows)
		}
	}
	return nil
}
