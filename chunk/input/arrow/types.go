package arrow

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/chunk/arrow"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// describe sets what follows from the type of a column, whose children are known.
func (c *column) describe(kind int, t arrow.Table, extension string) {
	switch kind {
	case arrow.Null:
		c.layout, c.Type, c.Lost = nullLayout, parquet.JSON, "null"
	case arrow.Bool:
		c.layout, c.Type = bitLayout, parquet.Bool
	case arrow.Int, arrow.Float, arrow.Decimal, arrow.Date, arrow.Time, arrow.Timestamp, arrow.Interval, arrow.Duration:
		c.layout = fixedLayout
		c.number(kind, t)
	case arrow.FixedSizeBinary:
		c.layout, c.width = fixedLayout, int(t.Int(0, 4, 0))
		c.Type, c.Binary = parquet.Type(fmt.Sprintf("binary(%d)", c.width)), true
		if extension == "arrow.uuid" && c.width == 16 {
			c.Type, c.Binary = parquet.UUID, false
		}
	case arrow.Binary, arrow.LargeBinary, arrow.BinaryView:
		c.bytes(kind)
		c.Type, c.Binary = parquet.Bytes, true
	case arrow.Text, arrow.LargeText, arrow.TextView:
		c.bytes(kind)
		c.Type, c.Text = parquet.String, true
		if extension == "arrow.json" {
			c.Type = parquet.JSON
		}
	default:
		c.nested(kind, t)
	}
	if c.layout == fixedLayout && (c.width <= 0 || c.width > maxWidth) {
		fail("column %q has values of %d bytes", c.Name, c.width)
	}
	if c.Write == nil {
		c.Write = c.Type.Writer()
	}
}

// bytes sets the layout of a column of bytes or text.
func (c *column) bytes(kind int) {
	c.layout, c.wide = bytesLayout, kind == arrow.LargeBinary || kind == arrow.LargeText
	if kind == arrow.BinaryView || kind == arrow.TextView {
		c.layout = viewLayout
	}
}

// nested describes a column with children.
func (c *column) nested(kind int, t arrow.Table) {
	want := 1
	switch kind {
	case arrow.List, arrow.LargeList:
		c.layout, c.wide = listLayout, kind == arrow.LargeList
	case arrow.ListView, arrow.LargeListView:
		c.layout, c.wide = listViewLayout, kind == arrow.LargeListView
	case arrow.FixedSizeList:
		c.layout, c.width = fixedListLayout, int(t.Int(0, 4, 0))
	case arrow.Map:
		c.layout, c.isMap, c.Type, c.Lost = listLayout, true, parquet.JSON, "map"
	case arrow.Struct:
		c.layout, want = structLayout, len(c.children)
	case arrow.Union:
		c.layout, c.Type, c.Lost, want = unionLayout, parquet.JSON, "union", len(c.children)
		c.union(t)
	case arrow.RunEndEncoded:
		c.layout, want = runsLayout, 2
	default:
		fail("column %q has the unknown type %d", c.Name, kind)
	}
	if len(c.children) != want || c.width < 0 {
		fail("column %q has %d children", c.Name, len(c.children))
	}
	switch {
	case c.isMap:
		c.pairs()
	case c.layout == runsLayout:
		c.runs()
	case c.layout == structLayout:
		tree.SetMembers(&c.Column, c.children)
	case want == 1 && c.Type == "":
		c.SetElement(&c.children[0].Column)
	}
}

// pairs checks the child of a map. JSON has no keys that are lists or structs: then a map is a list of
// structs.
func (c *column) pairs() {
	pair := c.children[0]
	if pair.layout != structLayout || len(pair.children) != 2 {
		fail("column %q is a map without keys and values", c.Name)
	}
	if key := pair.children[0]; key.layout != indexLayout && len(key.children) > 0 {
		c.isMap = false
		for i, name := range []string{"key", "value"} {
			pair.children[i].Column.Prefix = tree.New(name).Prefix
		}
	}
}

// runs checks the children of a column of runs, and takes over the type of its values.
func (c *column) runs() {
	ends, values := c.children[0], c.children[1]
	if ends.layout != fixedLayout || !slices.Contains([]parquet.Type{parquet.Int16, parquet.Int32, parquet.Int64}, ends.Type) {
		fail("column %q has runs that end at %s", c.Name, ends.Type)
	}
	c.Type, c.Lost = values.Type, values.Lost
}

// union sets the numbers of the types of a union.
func (c *column) union(t arrow.Table) {
	c.dense, c.byNumber = t.Int(0, 2, 0) != 0, make(map[int8]int)
	ids := t.Structs(1, 4)
	for i := range c.children {
		number := int8(i)
		if len(ids) >= 4*(i+1) {
			number = int8(binary.LittleEndian.Uint32(ids[4*i:]))
		}
		c.byNumber[number] = i
	}
}

// number describes a column of numbers, or of something that is stored as numbers.
func (c *column) number(kind int, t arrow.Table) {
	unit := parquet.Unit(t.Int(0, 2, 1)) // seconds are the default of timestamps only
	switch kind {
	case arrow.Int:
		c.integer(int(t.Int(0, 4, 0)), t.Bool(1))
	case arrow.Float:
		c.float(int(t.Int(0, 2, 0)))
	case arrow.Decimal:
		c.decimal(int(t.Int(0, 4, 0)), int(t.Int(1, 4, 0)), int(t.Int(2, 4, 128))/8)
	case arrow.Date:
		c.width, c.Type = 4, parquet.Date
		if unit != 0 {
			const day = 86400e3
			c.width, c.Write = 8, integers(func(dst []byte, ms int64) []byte {
				days := ms / day
				if ms%day < 0 {
					days--
				}
				return parquet.AppendDate(dst, days)
			})
		}
	case arrow.Interval:
		c.interval(int(t.Int(0, 2, 0)))
	case arrow.Duration:
		c.width, c.Type = 8, parquet.Int64
	case arrow.Time:
		c.width, c.Type = int(t.Int(1, 4, 32))/8, parquet.Time+inUnit(unit)
		c.Write = integers(c.known(unit).AppendTime)
	case arrow.Timestamp:
		unit = parquet.Unit(t.Int(0, 2, 0))
		utc := t.Text(1) != ""
		c.width, c.Type = 8, parquet.Timestamp+inUnit(unit)
		if utc {
			c.Type = parquet.TimestampUTC + inUnit(unit)
		}
		c.known(unit)
		c.Write = integers(func(dst []byte, n int64) []byte { return unit.AppendTimestamp(dst, n, utc) })
	}
}

// known refuses an unknown unit.
func (c *column) known(u parquet.Unit) parquet.Unit {
	if u < parquet.Seconds || u > parquet.Nanos {
		fail("column %q has times in the unknown unit %d", c.Name, u)
	}
	return u
}

// inUnit is the end of a type's name. Typed outputs have milliseconds instead of seconds.
func inUnit(u parquet.Unit) parquet.Type {
	switch u {
	case parquet.Micros:
		return ""
	case parquet.Nanos:
		return "(ns)"
	}
	return "(ms)"
}

func (c *column) integer(bits int, signed bool) {
	c.width, c.Type = bits/8, parquet.Type("int"+strconv.Itoa(bits))
	switch bits {
	case 8, 16, 32, 64:
	default:
		fail("column %q has integers of %d bits", c.Name, bits)
	}
	if !signed {
		c.Type = "u" + c.Type
	}
}

func (c *column) float(precision int) {
	switch precision {
	case 0:
		c.width, c.Type, c.Lost, c.Write = 2, parquet.Float32, "float16", parquet.AppendFloat16
	case 1:
		c.width, c.Type = 4, parquet.Float32
	case 2:
		c.width, c.Type = 8, parquet.Float64
	default:
		fail("column %q has floats of the unknown precision %d", c.Name, precision)
	}
}

// interval describes months, days, and parts of days.
func (c *column) interval(unit int) {
	c.Type, c.Lost = parquet.JSON, "interval"
	parts := map[int][]string{0: {"months"}, 1: {"days", "milliseconds"}, 2: {"months", "days", "nanoseconds"}}[unit]
	if parts == nil {
		fail("column %q has intervals of the unknown unit %d", c.Name, unit)
	}
	c.width = 4 * len(parts)
	if unit == 2 {
		c.width = 16
	}
	c.Write = func(dst, v []byte) []byte {
		dst = append(dst, '{')
		for i, name := range parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			size := min(4, len(v))
			if i == 2 {
				size = 8
			}
			dst = append(append(append(dst, '"'), name...), `":`...)
			dst, v = strconv.AppendInt(dst, arrow.Integer(v[:size], false), 10), v[size:]
		}
		return append(dst, '}')
	}
}

// maxScale limits the digits after the point of a decimal.
const maxScale = 1 << 12

func (c *column) decimal(digits, scale, width int) {
	switch {
	case width != 4 && width != 8 && width != 16 && width != 32:
		fail("column %q has decimals of %d bytes", c.Name, width)
	case scale < -maxScale || scale > maxScale:
		fail("column %q is a decimal with %d digits after the point", c.Name, scale)
	}
	c.width, c.Type = width, parquet.Decimal(digits, scale)
	c.Write = func(dst, v []byte) []byte {
		start := len(dst)
		dst = parquet.AppendLittleDecimal(dst, v, max(scale, 0))
		for i := scale; i < 0 && string(dst[start:]) != "0"; i++ {
			dst = append(dst, '0')
		}
		return dst
	}
}

// integers returns how integers are written.
func integers(write func([]byte, int64) []byte) func(dst, v []byte) []byte {
	return func(dst, v []byte) []byte { return write(dst, arrow.Integer(v, false)) }
}

// fields returns how many columns a column is, with its children.
func (c *column) fields() int {
	n := 1
	for _, child := range c.children {
		n += child.fields()
	}
	return n
}
