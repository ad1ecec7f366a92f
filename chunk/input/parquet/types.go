package parquet

import (
	"fmt"
	"strconv"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// Columns returns the columns that are read, with their types.
func (f *File) Columns() (list []format.Column) {
	for _, n := range f.members {
		c := format.Column{Name: n.name}
		c.Type, c.Lost = n.typed()
		list = append(list, c)
	}
	return list
}

// typed returns the type of a typed output that the values of the node keep, and what the node
// is if that is not its own. The type is "" if the values decide.
func (n *node) typed() (name, lost string) {
	switch n.kind {
	case objectNode:
		return "json", "struct"
	case mapNode:
		return "json", "map"
	case listNode:
		return n.children[0].listed()
	}
	return n.element.typed()
}

// listed returns the type of a list with this element. The elements of a typed list are never
// null, except for floats, among which null is NaN. So where they may be null, the values decide.
func (n *node) listed() (name, lost string) {
	switch name, lost = n.typed(); {
	case lost != "":
		return "", "list of " + lost
	case name == "" || n.optional && name != "float32" && name != "float64":
		return "", ""
	}
	return name + "[]", ""
}

// typed is the same for an element of the schema that has no children.
func (e *element) typed() (name, lost string) {
	t := e.meaning()
	switch t.kind {
	case spec.LogicalNull:
		return "json", "null"
	case spec.LogicalDecimal:
		if t.digits < 1 || t.scale > t.digits {
			return "", ""
		}
		return fmt.Sprintf("decimal(%d,%d)", t.digits, t.scale), ""
	}
	switch e.physical {
	case spec.PhysicalBool:
		return "bool", ""
	case spec.PhysicalInt32, spec.PhysicalInt64:
		return e.typedInteger(t), ""
	case spec.PhysicalInt96:
		return "timestamp(ns)", ""
	case spec.PhysicalFloat:
		return "float32", ""
	case spec.PhysicalDouble:
		return "float64", ""
	}
	return e.typedBytes(t)
}

// typedInteger returns the type of a column that is stored as integers.
func (e *element) typedInteger(t logical) string {
	unit := [...]string{spec.UnitMillis: "(ms)", spec.UnitMicros: "", spec.UnitNanos: "(ns)"}
	at := t.unit
	if at < spec.UnitMillis || at > spec.UnitNanos {
		at = spec.UnitNanos // as the values are read
	}
	zone := ""
	if t.utc {
		zone = "tz"
	}
	switch t.kind {
	case spec.LogicalDate:
		return "date"
	case spec.LogicalTime:
		return "time" + zone + unit[at]
	case spec.LogicalTimestamp:
		return "timestamp" + zone + unit[at]
	}
	bits, sign := int64(64), ""
	if e.physical == spec.PhysicalInt32 {
		bits = 32
	}
	if t.kind == spec.LogicalInteger {
		if t.bits == 8 || t.bits == 16 {
			bits = t.bits
		}
		if !t.signed {
			sign = "u"
		}
	}
	return sign + "int" + strconv.FormatInt(bits, 10)
}

// typedBytes returns the type of a column that is stored as bytes.
func (e *element) typedBytes(t logical) (name, lost string) {
	fixed := e.physical == spec.PhysicalFixed
	switch {
	case t.kind == spec.LogicalString:
		return "string", ""
	case t.kind == spec.LogicalEnum:
		return "string", "enum"
	case t.kind == spec.LogicalJSON:
		return "json", ""
	case t.kind == spec.LogicalUUID && fixed && e.length == 16:
		return "uuid", ""
	case t.kind == spec.LogicalFloat16 && fixed && e.length == 2:
		return "float32", "float16"
	case e.converted == spec.ConvertedInterval && fixed && e.length == 12:
		return "json", "interval"
	case fixed:
		return fmt.Sprintf("binary(%d)", e.length), ""
	}
	return "bytes", ""
}
