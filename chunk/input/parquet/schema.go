package parquet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/jsonline"
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
	kind   kind
	name   string
	prefix []byte // `"name":`
	// def is the definition level from which on the node exists; optional: below it, the
	// node is null.
	optional bool
	def      int
	// For a list or a map: the levels at which an element exists, and continues the list.
	elementDef, elementRep int
	// children are the members of an object, the element of a list, or key and value of a
	// map.
	children []*node
	// from and to delimit the leaves of the node, as indexes of columns.
	from, to int
	write    scalar // of a scalar
	text     bool   // it must be UTF-8
	binary   bool   // it is bytes without a meaning
	// Of a column of bytes: the number of its values beside the line, -1 for none, and whether
	// the line has them.
	blob    int
	inline  bool
	element *parquet.SchemaElement
}

// schemaBuilder turns the elements of a checked schema into nodes.
type schemaBuilder struct {
	elements []parquet.SchemaElement
	next     int // the next element
	leaves   []leaf
	json     bool // text is JSON
}

// nodes returns the members of a row, and all columns.
func nodes(m *parquet.FileMetaData) (members []*node, leaves []leaf, err error) {
	b := &schemaBuilder{elements: m.Schema, next: 1}
	var documents []string
	for _, kv := range m.KeyValues {
		if kv.Key == parquet.JSONColumns {
			_ = json.Unmarshal([]byte(kv.Value), &documents) // if it is damaged, the columns are text
		}
	}
	for range m.Schema[0].Children {
		b.json = slices.Contains(documents, m.Schema[b.next].Name)
		n, err := b.field(0, 0)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(members, func(other *node) bool { return other.name == n.name }) {
			return nil, nil, fmt.Errorf("two columns have the name %q", n.name)
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
		n.optional = optional
		return n, err
	}
	// A repeated field that is not in a list or map is a list that cannot be null.
	list := newNode(e.Name, listNode, len(b.leaves))
	list.def, list.elementDef, list.elementRep = def, def+1, rep+1
	element, err := b.value(def+1, rep+1)
	list.children = []*node{element}
	list.to = len(b.leaves)
	return list, err
}

// value builds the node of the next element, whose own levels are given.
func (b *schemaBuilder) value(def, rep int) (n *node, err error) {
	e := &b.elements[b.next]
	n = newNode(e.Name, scalarNode, len(b.leaves))
	n.def, n.element = def, e
	switch {
	case e.Children == 0:
		b.next++
		if b.json && e.Meaning().String != nil {
			e.Logical = &parquet.LogicalType{JSON: &parquet.Empty{}}
		}
		b.leaves = append(b.leaves, leaf{physical: *e.Physical, length: e.Length, maxDef: def, maxRep: rep})
		n.write, n.text, n.binary, err = scalarOf(e)
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
	return err
}

// mapping builds the node of a map from its repeated pair.
func (b *schemaBuilder) mapping(n *node, def, rep int) error {
	n.kind, n.elementDef, n.elementRep = mapNode, def+1, rep+1
	b.next++
	if err := b.members(n, 2, def+1, rep+1); err != nil {
		return err
	}
	if n.children[0].kind != scalarNode { // JSON has no such keys: a list of objects
		n.kind = listNode
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
	return &node{kind: k, name: name, from: leaf, blob: -1, inline: true, prefix: append(jsonline.AppendString(nil, name), ':')}
}

// choose returns the members to read.
func choose(all []*node, o format.Options) ([]*node, error) {
	chosen := all
	if len(o.Columns) > 0 {
		chosen = nil
	}
	for _, name := range o.Columns {
		at := slices.IndexFunc(all, func(n *node) bool { return n.name == name })
		if at < 0 {
			return nil, noColumn(name, all)
		}
		if slices.Contains(chosen, all[at]) {
			return nil, fmt.Errorf("column %q is asked for twice", name)
		}
		chosen = append(chosen, all[at])
	}
	if o.Members == nil {
		return chosen, nil
	}
	return slices.DeleteFunc(slices.Clone(chosen), func(n *node) bool { return !slices.Contains(o.Members, n.name) }), nil
}

func noColumn(name string, all []*node) error {
	var names []string
	for _, n := range all {
		names = append(names, n.name)
	}
	plain, _, typed := strings.Cut(name, ":")
	if typed && slices.Contains(names, plain) {
		return fmt.Errorf("column %q has its type in the file; ask for it without one", plain)
	}
	return format.NoColumn(name, names)
}

// Columns returns the columns that are read, with their types.
func (f *File) Columns() (list []format.Column) {
	var features map[string]json.RawMessage
	for _, kv := range f.metadata.KeyValues {
		if kv.Key == parquet.Features {
			features = parquet.ReadFeatures(kv.Value)
		}
	}
	for _, n := range f.members {
		t, lost := n.typed()
		if n.isFile() {
			t, lost = parquet.StructOf(n.children[0].name, n.children[1].name), ""
		}
		list = append(list, format.Column{Name: n.name, Type: string(t), Lost: lost, Bytes: n.isBytes(), Feature: string(features[n.name])})
	}
	return list
}

// typed returns the type of a typed output that the values of the node keep, and what the node
// is if that is not its own. The type is "" if the values decide. The elements of a typed list are
// never null, except for floats, among which null is NaN: so where they may be null, the values
// decide.
func (n *node) typed() (t parquet.Type, lost string) {
	switch n.kind {
	case objectNode:
		return parquet.JSON, "struct"
	case mapNode:
		return parquet.JSON, "map"
	case scalarNode:
		return n.element.Type()
	}
	element := n.children[0]
	switch t, lost = element.typed(); {
	case lost != "":
		return "", "list of " + lost
	case t == "" || element.optional && t != parquet.Float32 && t != parquet.Float64:
		return "", ""
	}
	return t.List(), ""
}
