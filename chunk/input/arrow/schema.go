package arrow

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// layout is which buffers and children a column has, besides a bitmap of what is not null.
type layout int

const (
	nullLayout      layout = iota // nothing, not even the bitmap
	bitLayout                     // a bit for each value
	fixedLayout                   // values of one size
	bytesLayout                   // offsets, and bytes
	viewLayout                    // values of 16 bytes, which refer to any number of buffers
	listLayout                    // offsets, and the child with all elements
	listViewLayout                // offsets, sizes, and the child
	fixedListLayout               // the child
	structLayout                  // the children
	unionLayout                   // numbers of types, offsets if it is dense, and the children; no bitmap
	runsLayout                    // the children: where runs end, and their values; no bitmap
	indexLayout                   // values of one size: numbers of values in a dictionary
)

// column is a column, or a child of one.
type column struct {
	tree.Column
	place    int // of a column that is read: its number among the members of a line, from 1
	layout   layout
	width    int  // bytes of a value, or elements of a list
	wide     bool // offsets have 64 bits, not 32
	unsigned bool // indexes
	dense    bool // of a union
	isMap    bool
	children []*column
	byNumber map[int8]int // the children of a union
	// Of a dictionary's numbers: which dictionary.
	id int64
}

// schema is the columns of a file.
type schema struct {
	columns []*column
	// dictionaries have the values of columns that are numbers.
	dictionaries map[int64]*column
	version      int64 // of the metadata
	said         parquet.Metadata
	fields       int
	names        int
}

// The limits of a schema.
const (
	maxFields = 1 << 15
	maxDepth  = 64
	maxNames  = 16 << 20 // bytes
	maxWidth  = parquet.MaxFixed
)

// newSchema builds the columns of a schema.
func newSchema(t arrow.Table, version int64) (s *schema, err error) {
	defer tree.Recovered(&err)
	s = &schema{dictionaries: make(map[int64]*column), version: version}
	switch {
	case version < arrow.Version4 || version > arrow.Version5:
		return nil, fmt.Errorf("its metadata has version %d, which is not supported; write the file again with a current version of Arrow", version+1)
	case t.Int(0, 2, 0) != 0:
		return nil, fmt.Errorf("its numbers are big-endian, which is not supported")
	}
	for _, pair := range t.Tables(2) {
		s.said.Read(pair.Text(0), pair.Text(1))
	}
	fields := t.Tables(1)
	if len(fields) == 0 {
		return nil, fmt.Errorf("the file has no columns")
	}
	names := make(map[string]bool)
	for _, field := range fields {
		c := s.column(field, 0)
		if names[c.Name] {
			return nil, fmt.Errorf("two columns have the name %q", c.Name)
		}
		names[c.Name] = true
		s.columns = append(s.columns, c)
	}
	return s, nil
}

// column builds the column of a field, at a depth.
func (s *schema) column(field arrow.Table, depth int) *column {
	c := &column{Column: tree.New(field.Text(0))}
	c.Optional = field.Bool(1)
	s.names += len(c.Name)
	switch s.fields++; {
	case s.fields > maxFields || s.names > maxNames:
		fail("the file has more than %d columns, or %d MiB of names", maxFields, maxNames>>20)
	case depth > maxDepth:
		fail("columns are nested more than %d levels deep", maxDepth)
	}
	for _, child := range field.Tables(5) {
		c.children = append(c.children, s.column(child, depth+1))
	}
	typ, _ := field.Table(3)
	c.describe(int(field.Int(2, 1, 0)), typ, s.extension(field, depth))
	encoding, ok := field.Table(4)
	if !ok {
		return c
	}
	index := &column{Column: tree.New(c.Name), layout: indexLayout, width: 4, id: encoding.Int(0, 8, 0)}
	index.Optional, index.Type, index.Lost = true, c.Type, c.Lost
	if integer, ok := encoding.Table(1); ok {
		index.width, index.unsigned = int(integer.Int(0, 4, 0))/8, !integer.Bool(1)
	}
	switch index.width {
	case 1, 2, 4, 8:
	default:
		fail("column %q has a dictionary with indexes of %d bytes", c.Name, index.width)
	}
	if s.dictionaries[index.id] == nil {
		s.dictionaries[index.id] = c
	}
	return index
}

// extension returns what a column is beyond its type; only what changes how it is written.
func (s *schema) extension(field arrow.Table, depth int) string {
	if depth == 0 && slices.Contains(s.said.JSON, field.Text(0)) {
		return "arrow.json"
	}
	for _, pair := range field.Tables(6) {
		if pair.Text(0) == "ARROW:extension:name" {
			return pair.Text(1)
		}
	}
	return ""
}
