package parquet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Column is a column of the file.
type Column struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Width is the number of values in each row, as a list; 0 means a single value.
	Width int `json:"width,omitempty"`
	// Length is the number of elements that a list in a line must have; 0 for any.
	Length int `json:"length,omitempty"`
	// Dimensions are those of the values of a row if there is more than one: lists of lists.
	Dimensions []int `json:"dimensions,omitempty"`
	// Typed: the values are not in the lines, but in Rows.Typed. Only bool, int64, float32
	// and float64 can be; only they can have a width.
	Typed bool `json:"typed,omitempty"`
}

// size returns the number of bytes of a typed value, 0 if values of the type are always in
// lines.
func (c Column) size() int {
	switch c.Type {
	case Bool:
		return 1
	case Float32:
		return 4
	case Int64, Float64:
		return 8
	}
	return 0
}

// depth returns how many lists are nested around a value: 0 if a row has a single one.
func (c Column) depth() int {
	switch {
	case len(c.Dimensions) > 0:
		return len(c.Dimensions)
	case c.Width > 0:
		return 1
	}
	return c.Type.depth()
}

// isList reports whether a row has a list of values.
func (c Column) isList() bool { return c.depth() > 0 }

// hasShape reports whether the dimensions make up the width.
func (c Column) hasShape() bool {
	values := 1
	for _, n := range c.Dimensions {
		if n <= 0 || values > c.Width/n {
			return false
		}
		values *= n
	}
	return len(c.Dimensions) == 0 || c.Typed && values == c.Width && len(c.Dimensions) <= MaxDepth
}

// rowBytes returns the number of bytes of a typed row.
func (c Column) rowBytes() int { return c.size() * max(c.Width, 1) }

// ErrorColumn is the last column of every file: why a record failed, as JSON.
const ErrorColumn = "_error"

// Schema describes the rows of a file. Every value may be null.
type Schema struct {
	Columns []Column `json:"columns"`
	// Closed: a member of a line that is not a column does not fit. Otherwise it is left
	// out.
	Closed bool `json:"closed,omitempty"`
}

// Validate checks that a file can have this schema.
func (s Schema) Validate() error {
	names := make(map[string]bool)
	for _, c := range s.Columns {
		switch {
		case c.Name == "":
			return errors.New("a column has no name")
		case c.Name == ErrorColumn:
			return fmt.Errorf("%s is the column of errors, and there already", ErrorColumn)
		case names[c.Name]:
			return fmt.Errorf("two columns have the name %q", c.Name)
		case !c.Type.known():
			return fmt.Errorf("column %q: unknown type %q", c.Name, c.Type)
		case c.Typed && c.size() == 0:
			return fmt.Errorf("column %q: a kernel's values cannot have the type %s", c.Name, c.Type)
		case c.Width < 0 || c.Width > 0 && !c.Typed:
			return fmt.Errorf("column %q: %d values per row", c.Name, c.Width)
		case !c.hasShape():
			return fmt.Errorf("column %q: %d values per row cannot have the dimensions %d", c.Name, c.Width, c.Dimensions)
		}
		names[c.Name] = true
	}
	return nil
}

// all returns the columns of the file.
func (s Schema) all() []Column {
	return append(slices.Clip(s.Columns), Column{Name: ErrorColumn, Type: JSON})
}

// Takes reports whether a member with this name may be in a line, to be stored or checked.
func (s Schema) Takes(name string) bool {
	return s.Closed || slices.ContainsFunc(s.Columns, func(c Column) bool { return c.Name == name })
}

// checkLength returns an error if a list does not have the length of the column.
func (c Column) checkLength(value []byte) error {
	if c.Length == 0 || value[0] != '[' {
		return nil
	}
	n := 0
	for range jsonline.Elements(value) {
		n++
	}
	if n != c.Length {
		return fmt.Errorf("a list of %d values, not of %d", n, c.Length)
	}
	return nil
}

// Check returns an error if a line, the JSON of a result, does not fit in the schema. The
// message depends on the line alone.
func (s Schema) Check(line []byte) error {
	var failed error
	object := jsonline.Members(line, func(_ []byte, name string, value []byte) bool {
		at := slices.IndexFunc(s.Columns, func(c Column) bool { return c.Name == name })
		switch {
		case name == ErrorColumn:
		case at < 0:
			if s.Closed {
				failed = fmt.Errorf("%q is not a column of the output", name)
			}
		case !s.Columns[at].Typed:
			err := s.Columns[at].Type.check(value)
			if err == nil {
				err = s.Columns[at].checkLength(value)
			}
			if err != nil {
				failed = fmt.Errorf("column %q: %w", name, err)
			}
		}
		return failed == nil
	})
	if !object {
		return errors.New("the result is not a JSON object: it has no columns")
	}
	return failed
}
