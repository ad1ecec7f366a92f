package columns

import "github.com/gpurun/gpurun/chunk/parquet"

// Spec is which columns a job stores as raw values, before their layout is known.
type Spec struct {
	// Arrays are stored in files of their own.
	Arrays []ArraySpec `json:"arrays,omitempty"`
	// Table describes an output that is a table; nil for lines.
	Table *TableSpec `json:"table,omitempty"`
}

// ArraySpec is a column that becomes an array.
type ArraySpec struct {
	Name string `json:"name"`
	// Half stores floats in half precision.
	Half bool `json:"half,omitempty"`
}

// Store returns the column as it is stored.
func (a ArraySpec) Store(c Column) Column {
	if a.Half {
		c.Kind = Float16
	}
	return c
}

// TableSpec is what is known of a table's columns.
type TableSpec struct {
	// Columns lists the columns of the table, in order; empty for all. A type may be empty.
	Columns []parquet.Column `json:"columns,omitempty"`
	// Sample has the members of the first input records.
	Sample parquet.Sample `json:"sample"`
	// Input are columns of the input whose types its files declare. Unlike those in the
	// sample, they hold for all records.
	Input []parquet.Column `json:"input,omitempty"`
}

// Fallback returns the layout of a job without any result.
func (s *Spec) Fallback() Layout {
	var l Layout
	for _, a := range s.Arrays {
		l.Columns = append(l.Columns, a.Store(Column{Name: a.Name, Kind: Float32}))
	}
	if s.Table != nil {
		l.Table = s.Table.schema(nil, nil, nil, nil)
	}
	return l
}

// Clone returns a copy whose table can be completed with what the input shows.
func (s *Spec) Clone() *Spec {
	if s == nil {
		return nil
	}
	with := *s
	if s.Table != nil {
		table := *s.Table
		with.Table = &table
	}
	return &with
}

// IsTable reports whether the output is a table.
func (s *Spec) IsTable() bool { return s != nil && s.Table != nil }
