// Package tree has what the readers of columnar files share: columns, which may be inside others, their
// types, and which of them are read.
package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// Column is a column, or something inside one, as far as its format does not matter. The columns of
// formats embed it.
type Column struct {
	Name   string
	Prefix []byte // `"name":`
	// Optional: it may be null.
	Optional bool
	// Of single values: how they are written, and whether they must be UTF-8, or are bytes without a meaning.
	Write        func(dst, v []byte) []byte
	Text, Binary bool
	// Type is the type in which a typed output keeps the values; "" if the values decide. Lost names their
	// own type if that is another one.
	Type parquet.Type
	Lost string
	// file is the type of a struct of bytes and path, "" of another, Bytes and Path are the numbers of its
	// members. Data sets of the Hugging Face Hub have such structs for images and sounds. The bytes may be
	// null: they are then in the file at the path.
	file        parquet.Type
	Bytes, Path int
	// Of a column of bytes: the number of its values beside the line, -1 for none, and whether the line has
	// them.
	Beside int
	Inline bool
}

// New returns a column whose type is not known.
func New(name string) Column {
	return Column{Name: name, Prefix: append(jsonline.AppendString(nil, name), ':'), Beside: -1, Inline: true}
}

func (c *Column) base() *Column { return c }

// of is a column of a format.
type of interface{ base() *Column }

// IsFile reports whether the values are structs of bytes and path.
func (c *Column) IsFile() bool { return c.file != "" }

func (c *Column) isBytes() bool { return c.Binary || c.IsFile() }

// SetMembers sets the type of a struct.
func SetMembers[C of](c *Column, members []C) {
	c.Type, c.Lost = parquet.JSON, "struct"
	find := func(name string) int {
		return slices.IndexFunc(members, func(m C) bool { return m.base().Name == name })
	}
	if c.Bytes, c.Path = find(parquet.BytesMember), find(parquet.PathMember); len(members) == 2 && c.Bytes >= 0 && c.Path >= 0 &&
		members[c.Bytes].base().Binary && members[c.Path].base().Text {
		c.file = parquet.StructOf(members[0].base().Name, members[1].base().Name)
	}
}

// SetElement sets the type of a list. The elements of a typed list are never null, except for floats, among
// which null is NaN: so where they may be null, the values decide.
func (c *Column) SetElement(element *Column) {
	switch t := element.Type; {
	case element.Lost != "":
		c.Lost = "list of " + element.Lost
	case t != "" && (!element.Optional || t == parquet.Float32 || t == parquet.Float64):
		c.Type = t.List()
	}
}

// Choose returns the columns to read, and decides where the values of columns of bytes go.
func Choose[C interface {
	of
	comparable
}](all []C, o format.Options) ([]C, error) {
	chosen := slices.Clone(all)
	if len(o.Columns) > 0 {
		chosen = nil
	}
	for _, name := range o.Columns {
		at := slices.IndexFunc(all, func(c C) bool { return c.base().Name == name })
		if at < 0 {
			return nil, noColumn(name, all)
		}
		if slices.Contains(chosen, all[at]) {
			return nil, &format.ColumnError{Err: fmt.Errorf("column %q is asked for twice", name)}
		}
		chosen = append(chosen, all[at])
	}
	return slices.DeleteFunc(chosen, func(chosen C) bool {
		c := chosen.base()
		if c.isBytes() {
			c.Beside, c.Inline = o.Bytes.Place(c.Name)
		}
		return o.Members != nil && !slices.Contains(o.Members, c.Name) || !c.Inline && c.Beside < 0
	}), nil
}

func noColumn[C of](name string, all []C) error {
	var names []string
	for _, c := range all {
		names = append(names, c.base().Name)
	}
	err := format.NoColumn(name, names)
	if plain, _, typed := strings.Cut(name, ":"); typed && slices.Contains(names, plain) {
		err = fmt.Errorf("column %q has its type in the file; ask for it without one", plain)
	}
	return &format.ColumnError{Err: err}
}

// Describe returns columns with their types. said is what the file says of them.
func Describe[C of](columns []C, said parquet.Metadata) (list []format.Column) {
	for _, column := range columns {
		c := column.base()
		one := format.Column{Name: c.Name, Type: string(c.Type), Lost: c.Lost, Bytes: c.isBytes(), Feature: string(said.Features[c.Name])}
		if c.IsFile() {
			one.Type, one.Lost = string(c.file), ""
		}
		list = append(list, one)
	}
	return list
}

// AppendBadText appends the member that rejects a row because of text that is not UTF-8, which cannot be kept.
func (c *Column) AppendBadText(dst []byte) []byte {
	return record.AppendRejection(append(dst, `,"_error":`...), fmt.Sprintf("column %q is not valid UTF-8", c.Name))
}
