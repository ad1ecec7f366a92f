package parquet

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// kind is what a node becomes in JSON.
type kind int

const (
	scalarNode kind = iota
	objectNode
	listNode
	mapNode
)

// node is a value in a row: a member of the row, or something inside one.
//
// A column's values carry two levels. The definition level tells how much of the path to
// the value exists; the repetition level, which list continues with it. So one value of the
// node's first leaf decides whether the node is null, and when a list ends.
type node struct {
	tree.Column
	kind kind
	// def is the definition level from which on the node exists. Below it, one that is optional is null.
	def int
	// For a list or a map: the levels at which an element exists, and continues the list.
	elementDef, elementRep int
	// children are the members of an object, the element of a list, or key and value of a
	// map.
	children []*node
	// from and to delimit the leaves of the node, as indexes of columns.
	from, to int
}

// schemaBuilder turns the elements of a checked schema into nodes.
type schemaBuilder struct {
	elements []parquet.SchemaElement
	next     int // the next element
	leaves   []leaf
	json     bool // text is JSON
}

// nodes returns the members of a row, and all columns.
func nodes(schema []parquet.SchemaElement, said parquet.Metadata) (members []*node, leaves []leaf, err error) {
	b := &schemaBuilder{elements: schema, next: 1}
	for range schema[0].Children {
		b.json = slices.Contains(said.JSON, schema[b.next].Name)
		n, err := b.field(0, 0)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(members, func(other *node) bool { return other.Name == n.Name }) {
			return nil, nil, fmt.Errorf("two columns have the name %q", n.Name)
		}
		members = append(members, n)
	}
	return members, b.leaves, nil
}

// field builds the node of the next element, inside something at the given levels.
func (b *schemaBuilder) field(def, rep int) (*node, error) {
	e := &b.elements[b.next]
	if optional := e.Repetition == parquet.Optional; e.Repetition != parquet.Repeated {
		if optional {
			def++
		}
		n, err := b.value(def, rep)
		n.Optional = optional
		return n, err
	}
	// A repeated field that is not in a list or map is a list that cannot be null.
	list := newNode(e.Name, listNode, len(b.leaves))
	list.def, list.elementDef, list.elementRep = def, def+1, rep+1
	element, err := b.value(def+1, rep+1)
	list.children = []*node{element}
	list.SetElement(&element.Column)
	list.to = len(b.leaves)
	return list, err
}

// value builds the node of the next element, whose own levels are given.
func (b *schemaBuilder) value(def, rep int) (n *node, err error) {
	e := &b.elements[b.next]
	n = newNode(e.Name, scalarNode, len(b.leaves))
	n.def = def
	switch {
	case e.Children == 0:
		b.next++
		if b.json && e.Meaning().String != nil {
			e.Logical = &parquet.LogicalType{JSON: &parquet.Empty{}}
		}
		b.leaves = append(b.leaves, leaf{physical: *e.Physical, length: e.Length, maxDef: def, maxRep: rep})
		err = n.describe(e)
	case e.Meaning().List != nil && b.wraps(e):
		b.next++
		err = b.list(n, e.Name, def, rep)
	case e.Meaning().Map != nil && b.wraps(e) && b.elements[b.next+1].Children == 2: // a key and a value
		b.next++
		err = b.mapping(n, def, rep)
	default:
		b.next++
		n.kind = objectNode
		err = b.members(n, e.Children, def, rep)
		tree.SetMembers(&n.Column, n.children)
	}
	n.to = len(b.leaves)
	return n, err
}

// wraps reports whether the next element is a group around one repeated field.
func (b *schemaBuilder) wraps(e *parquet.SchemaElement) bool {
	return e.Children == 1 && b.elements[b.next+1].Repetition == parquet.Repeated
}

// list builds the node of a list from its repeated field. The field is a group around the
// element; in files of old writers, it is the element itself.
func (b *schemaBuilder) list(n *node, name string, def, rep int) error {
	n.kind, n.elementDef, n.elementRep = listNode, def+1, rep+1
	repeated := &b.elements[b.next]
	isElement := repeated.Children != 1 || repeated.Name == "array" || repeated.Name == name+"_tuple"
	var element *node
	var err error
	if isElement {
		element, err = b.value(def+1, rep+1)
	} else {
		b.next++
		element, err = b.field(def+1, rep+1)
	}
	n.children = []*node{element}
	n.SetElement(&element.Column)
	return err
}

// mapping builds the node of a map from its repeated pair.
func (b *schemaBuilder) mapping(n *node, def, rep int) error {
	n.kind, n.elementDef, n.elementRep = mapNode, def+1, rep+1
	n.Type, n.Lost = parquet.JSON, "map"
	b.next++
	if err := b.members(n, 2, def+1, rep+1); err != nil {
		return err
	}
	if n.children[0].kind != scalarNode { // JSON has no such keys: a list of objects
		n.kind, n.Type, n.Lost = listNode, "", "list of struct"
		pair := newNode("", objectNode, n.from)
		pair.def, pair.to, pair.children = def+1, len(b.leaves), n.children
		n.children = []*node{pair}
	}
	return nil
}

func (b *schemaBuilder) members(n *node, count int32, def, rep int) error {
	for range count {
		member, err := b.field(def, rep)
		if err != nil {
			return err
		}
		n.children = append(n.children, member)
	}
	return nil
}

func newNode(name string, k kind, leaf int) *node {
	return &node{Column: tree.New(name), kind: k, from: leaf}
}

// Columns returns the columns that are read, with their types.
func (f *File) Columns() []format.Column { return tree.Describe(f.members, f.said) }
