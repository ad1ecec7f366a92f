package parquet

import (
	"errors"
	"fmt"
	"math"

	"github.com/gpurun/gpurun/chunk/parquet"
)

// checkFooter rejects a footer that contradicts itself or the size of the file.
func checkFooter(m *parquet.FileMetaData, size int64) error {
	leaves, err := checkSchema(m.Schema)
	if err != nil {
		return err
	}
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

// checkSchema checks that the elements form a tree, and counts its leaves.
func checkSchema(schema []parquet.SchemaElement) (leaves int, err error) {
	if len(schema) < 2 {
		return 0, errors.New("the file has no columns")
	}
	open := []int32{1} // how many elements each level still expects
	for i, e := range schema {
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return 0, fmt.Errorf("the schema has %d elements too many", len(schema)-i)
		}
		open[len(open)-1]--
		switch {
		case e.Children < 0 || int(e.Children) > len(schema):
			return 0, fmt.Errorf("column %q has %d members", e.Name, e.Children)
		case e.Children > 0:
			if open = append(open, e.Children); len(open) > maxDepth {
				return 0, fmt.Errorf("columns are nested more than %d levels deep", maxDepth)
			}
		case e.Physical == nil || i == 0:
			return 0, fmt.Errorf("column %q has no type", e.Name)
		default:
			leaves++
		}
	}
	for _, missing := range open {
		if missing > 0 {
			return 0, errors.New("the schema is truncated")
		}
	}
	if leaves > math.MaxInt16 {
		return 0, fmt.Errorf("the file has %d columns; at most %d are supported", leaves, math.MaxInt16)
	}
	return leaves, nil
}

// maxDepth limits the nesting of columns.
const maxDepth = 64

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
