package parquet

import (
	"math"
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

// schemaBuilder turns the elements of a schema into nodes. It fails if they are not a tree.
type schemaBuilder struct {
	elements []parquet.SchemaElement // that are left
	depth    int
	leaves   []leaf
	json     bool // text is JSON
}

// nodes returns the members of a row, and all columns.
func nodes(schema []parquet.SchemaElement, said parquet.Metadata) (members []*node, leaves []leaf) {
	b := &schemaBuilder{elements: schema}
	for range b.take().Children {
		b.json = slices.Contains(said.JSON, b.peek().Name)
		n := b.field(0, 0)
		if slices.ContainsFunc(members, func(other *node) bool { return other.Name == n.Name }) {
			tree.Fail("two columns have the name %q", n.Name)
		}
		members = append(members, n)
	}
	switch {
	case len(members) == 0:
		tree.Fail("the file has no columns")
	case len(b.elements) > 0:
		tree.Fail("the schema has %d elements too many", len(b.elements))
	}
	return members, b.leaves
}

// maxDepth limits the nesting of columns. Their levels must fit into a byte.
const maxDepth = 64

// peek returns the next element.
func (b *schemaBuilder) peek() *parquet.SchemaElement {
	if len(b.elements) == 0 {
		tree.Fail("the schema is truncated")
	}
	return &b.elements[0]
}

// take returns the next element and steps over it.
func (b *schemaBuilder) take() *parquet.SchemaElement {
	e := b.peek()
	b.elements = b.elements[1:]
	return e
}

// field builds the node of the next element, inside something at the given levels.
func (b *schemaBuilder) field(def, rep int) *node {
	e := b.peek()
	if e.Repetition == parquet.Repeated { // not in a list or map, it is a list that cannot be null
		list := newNode(e.Name, listNode, len(b.leaves))
		list.def = def
		b.list(list, b.value, def, rep)
		list.to = len(b.leaves)
		return list
	}
	optional := e.Repetition == parquet.Optional
	if optional {
		def++
	}
	n := b.value(def, rep)
	n.Optional = optional
	return n
}

// value builds the node of the next element, whose own levels are given.
func (b *schemaBuilder) value(def, rep int) *node {
	e := b.take()
	n := newNode(e.Name, scalarNode, len(b.leaves))
	n.def = def
	if b.depth++; b.depth > maxDepth {
		tree.Fail("columns are nested more than %d levels deep", maxDepth)
	}
	defer func() { b.depth-- }()
	switch wraps := e.Children == 1 && b.peek().Repetition == parquet.Repeated; {
	case e.Children < 0:
		tree.Fail("column %q has %d members", e.Name, e.Children)
	case len(b.leaves) == math.MaxInt16:
		tree.Fail("the file has more than %d columns", math.MaxInt16)
	case e.Children == 0 && e.Physical == nil:
		tree.Fail("column %q has no type", e.Name)
	case e.Children == 0:
		if b.json && e.Meaning().String != nil {
			e.Logical = &parquet.LogicalType{JSON: &parquet.Empty{}}
		}
		b.leaves = append(b.leaves, leaf{physical: *e.Physical, length: e.Length, maxDef: def, maxRep: rep})
		n.describe(e)
	case e.Meaning().List != nil && wraps:
		// The repeated field is a group around the element; in files of old writers, it is the element itself.
		repeated, element := b.peek(), b.value
		if repeated.Children == 1 && repeated.Name != "array" && repeated.Name != e.Name+"_tuple" {
			b.take()
			element = b.field
		}
		b.list(n, element, def, rep)
	case e.Meaning().Map != nil && wraps && b.peek().Children == 2: // a key and a value
		b.mapping(n, def, rep)
	default:
		n.kind = objectNode
		b.members(n, e.Children, def, rep)
		tree.SetMembers(&n.Column, n.children)
	}
	n.to = len(b.leaves)
	return n
}

// list makes a node a list.
func (b *schemaBuilder) list(n *node, element func(def, rep int) *node, def, rep int) {
	n.kind, n.elementDef, n.elementRep = listNode, def+1, rep+1
	n.children = []*node{element(def+1, rep+1)}
	n.SetElement(&n.children[0].Column)
}

// mapping makes a node a map, from its repeated pair.
func (b *schemaBuilder) mapping(n *node, def, rep int) {
	n.kind, n.elementDef, n.elementRep = mapNode, def+1, rep+1
	n.Type, n.Lost = parquet.JSON, "map"
	b.members(n, b.take().Children, def+1, rep+1)
	if n.children[0].kind != scalarNode { // JSON has no such keys: a list of objects
		n.kind, n.Type, n.Lost = listNode, "", "list of struct"
		pair := newNode("", objectNode, n.from)
		pair.def, pair.to, pair.children = def+1, len(b.leaves), n.children
		n.children = []*node{pair}
	}
}

func (b *schemaBuilder) members(n *node, count int32, def, rep int) {
	for range count {
		n.children = append(n.children, b.field(def, rep))
	}
}

func newNode(name string, k kind, leaf int) *node {
	return &node{Column: tree.New(name), kind: k, from: leaf}
}

// Columns returns the columns that are read, with their types.
func (f *File) Columns() []format.Column { return tree.Describe(f.members, f.said) }
