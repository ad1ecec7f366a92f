package columns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/nearest"
)

// Typed returns the columns of a kernel that the table stores as they are: those that it has,
// unless the user gives them another type, or lists of any length.
func (t *TableSpec) Typed(kernel []Column) (typed []Column) {
	for _, c := range kernel {
		at := parquet.Find(t.Columns, c.Name)
		switch {
		case c.Kind == Float16 || c.Kind.Bytes() == 0 || len(c.Dimensions) > parquet.MaxDepth: // which becomes JSON
		case len(t.Columns) == 0 || at >= 0 && (t.Columns[at].Type == "" || t.Columns[at].Type == c.ListType() && t.Columns[at].Length == c.Width):
			typed = append(typed, c)
		}
	}
	return typed
}

// ListType returns the type of a table's column for values that come as JSON.
func (c Column) ListType() parquet.Type {
	t := parquet.Type(c.Kind)
	if c.Width > 0 {
		t = t.List()
	}
	for range len(c.Dimensions) - 1 {
		t = t.List()
	}
	return t
}

// Layout returns the layout of a table: typed are the columns that it stores as they are,
// lines a sample of the results' lines, without those columns. own are the members that the
// results do not take from their records, order the kernel's columns as it returns them.
func (t *TableSpec) Layout(typed []Column, lines parquet.Sample, own map[string]bool, order []string) (Layout, error) {
	schema := t.schema(typed, &lines, own, order)
	for _, c := range schema.Columns {
		_, inLines := lines.Type(c.Name)
		_, inSample := t.Sample.Type(c.Name)
		if !c.Typed && !inLines && !inSample {
			return Layout{}, t.noColumn(c.Name, typed, lines)
		}
	}
	var stored []Column
	for _, c := range schema.Columns { // in the order of the table
		if c.Typed {
			stored = append(stored, typed[find(typed, c.Name)])
		}
	}
	return Layout{Columns: stored, Table: schema, Nulls: len(stored) > 0}, schema.Validate()
}

// noColumn describes a column that neither the results nor their records have.
func (t *TableSpec) noColumn(name string, typed []Column, lines parquet.Sample) error {
	var names []string
	for _, known := range typed {
		names = append(names, known.Name)
	}
	for _, known := range lines.Columns {
		names = append(names, known.Name)
	}
	all := slices.Clone(names)
	for _, known := range t.Sample.Columns {
		all = append(all, known.Name)
	}
	if near := nearest.Of(name, all, 3); near != "" {
		return fmt.Errorf("the results have no column %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("the results have no column %q; their columns are %s", name, strings.Join(names, ", "))
}

// schema returns the schema of the table; lines is nil if there is no result.
func (t *TableSpec) schema(typed []Column, lines *parquet.Sample, own map[string]bool, order []string) *parquet.Schema {
	if lines == nil {
		lines = &parquet.Sample{}
	}
	columnOf := func(name string, chosen parquet.Type, length int) parquet.Column {
		if at := find(typed, name); at >= 0 {
			return parquet.Column{Name: name, Type: parquet.Type(typed[at].Kind), Width: typed[at].Width, Dimensions: typed[at].Dimensions, Typed: true}
		}
		if chosen == "" {
			chosen = t.typeOf(name, lines, own[name])
		}
		column := parquet.Column{Name: name, Type: chosen, Length: length}
		if at := parquet.Find(t.Input, name); at >= 0 && !own[name] && t.Input[at].Type == chosen {
			column.Feature = t.Input[at].Feature
		}
		return column
	}
	s := &parquet.Schema{Closed: len(t.Columns) == 0}
	for _, c := range t.Columns {
		s.Columns = append(s.Columns, columnOf(c.Name, c.Type, c.Length))
	}
	if len(t.Columns) > 0 {
		return s
	}
	add := func(name string) {
		if parquet.Find(s.Columns, name) < 0 {
			s.Columns = append(s.Columns, columnOf(name, "", 0))
		}
	}
	if t.keepsInput(lines) {
		for _, c := range t.Sample.Columns {
			add(c.Name)
		}
	}
	for _, c := range lines.Columns {
		if !slices.Contains(order, c.Name) {
			add(c.Name)
		}
	}
	for _, name := range order { // lines lack the typed columns, which are in between
		if _, inLines := lines.Type(name); inLines || find(typed, name) >= 0 {
			add(name)
		}
	}
	for _, c := range typed {
		add(c.Name)
	}
	return s
}

// typeOf returns the type of a column for which the user names none. own means that the results
// do not take the column from their records.
func (t *TableSpec) typeOf(name string, lines *parquet.Sample, own bool) parquet.Type {
	sampled, _ := t.Sample.Type(name)
	result, _ := lines.Type(name)
	at := parquet.Find(t.Input, name)
	switch {
	case at < 0:
	case !own:
		return t.Input[at].Type
	case result != "":
		return result.Settled()
	}
	return parquet.Widen(sampled, result).Settled()
}

// keepsInput reports whether results have the members of their records: a kernel may also
// replace records by something else. Columns of bytes, which have no type in the sample, say nothing about
// that: they are beside the lines.
func (t *TableSpec) keepsInput(lines *parquet.Sample) bool {
	inLines := func(c parquet.Column) bool { return c.Type != "" }
	if len(lines.Columns) == 0 || !slices.ContainsFunc(t.Sample.Columns, inLines) {
		return true
	}
	return slices.ContainsFunc(lines.Columns, func(c parquet.Column) bool {
		_, both := t.Sample.Type(c.Name)
		return both
	})
}
