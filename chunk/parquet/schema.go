package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Column is a column of the file.
type Column struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Width is the number of values in each row, as a list; 0 means a single value.
	Width int `json:"width,omitempty"`
	// Length is the number of elements that a list in a line must have; 0 for any.
	Length int `json:"length,omitempty"`
	// Dimensions is set if the values of a row have more than one dimension: they are lists of lists.
	Dimensions []int `json:"dimensions,omitempty"`
	// Typed: the values are not in the lines. Only bool, int64, float32
	// and float64 can be; only they can have a width.
	Typed bool `json:"typed,omitempty"`
	// Feature is what the input says under Features, as JSON; "" for nothing.
	Feature string `json:"feature,omitempty"`
}

// Depth returns how many lists are nested around a value: 0 if a row has a single one.
func (c Column) Depth() int {
	if shape := c.Shape(); shape != nil {
		return len(shape)
	}
	return c.Type.Depth()
}

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

// ErrorColumn is the last column of every file: why a record failed, as JSON.
const ErrorColumn = "_error"

// Schema describes the rows of a file. Every value may be null.
type Schema struct {
	Columns []Column `json:"columns"`
	// Closed: a member of a line that is not a column does not fit. Otherwise it is left
	// out.
	Closed bool `json:"closed,omitempty"`
}

// Metadata lists the columns of JSON text, and what is known about columns, for files of the schema.
func (s Schema) Metadata() []KeyValue {
	list := []KeyValue{{Key: JSONColumns, Value: s.jsonColumns()}}
	var f features
	f.Info.Features = make(map[string]json.RawMessage)
	for _, c := range s.Columns {
		if c.Feature != "" {
			f.Info.Features[c.Name] = json.RawMessage(c.Feature)
		}
	}
	if text, err := json.Marshal(f); err == nil && len(f.Info.Features) > 0 {
		list = append(list, KeyValue{Key: Features, Value: string(text)})
	}
	return list
}

// jsonColumns lists the columns of JSON, as a JSON array.
func (s Schema) jsonColumns() string {
	names := []string{}
	for _, c := range s.All() {
		if c.Type.Base() == JSON {
			names = append(names, c.Name)
		}
	}
	list, _ := json.Marshal(names) // of strings, which cannot fail
	return string(list)
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
		case c.Typed && c.Type != Bool && c.Type != Int64 && c.Type != Float32 && c.Type != Float64:
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

// All returns the columns of the file.
func (s Schema) All() []Column {
	return append(slices.Clip(s.Columns), Column{Name: ErrorColumn, Type: JSON})
}

// Find returns the position of a column, -1 if there is none of that name.
func Find(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return c.Name == name })
}

// Takes reports whether a member with this name may be in a line, to be stored or checked.
func (s Schema) Takes(name string) bool {
	return s.Closed || Find(s.Columns, name) >= 0
}

// Leaf returns how the values of the column are stored: the physical type, and the size of a
// value, 0 if it depends on the value.
func (c Column) Leaf() (physical int32, size int) {
	of, _ := c.Type.Base().traits()
	return of.physical, Size(of.physical, of.length)
}

// Leaf is what a file stores apart: a column, or a member of a struct.
type Leaf struct {
	Column        // with the name of the struct, but the type of the member
	Member string // "" if the column is not a struct
	First  bool   // it is the first member of a struct
}

// Exists returns the byte before a value.
func (l Leaf) Exists() byte {
	if l.Member != "" {
		return memberExists
	}
	return exists
}

// Leaves returns what a file stores of all columns, in order.
func (s Schema) Leaves() (list []Leaf) {
	for _, c := range s.All() {
		members := c.Type.Members()
		for i, m := range members {
			list = append(list, Leaf{Column: Column{Name: c.Name, Type: m.Type}, Member: m.Name, First: i == 0})
		}
		if members == nil {
			list = append(list, Leaf{Column: c})
		}
	}
	return list
}
