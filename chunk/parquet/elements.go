package parquet

import (
	"fmt"
	"strconv"
)

// describe returns the description of a column of single values.
func (t Type) describe(name string, repetition int32) SchemaElement {
	of, _ := t.traits()
	e := SchemaElement{Physical: &of.physical, Length: of.length, Repetition: repetition, Name: name}
	converted := func(n int32) { e.Converted = &n }
	switch of.kind {
	case String, JSON, UUID: // polars takes the logical type JSON for bytes, Spark refuses that of UUIDs
		converted(ConvertedUTF8)
		e.Logical = &LogicalType{String: &Empty{}}
	case Date:
		converted(ConvertedDate)
		e.Logical = &LogicalType{Date: &Empty{}}
	case decimal:
		converted(ConvertedDecimal)
		scale := int32(of.scale)
		e.Scale, e.Precision = &scale, int32(of.digits)
		e.Logical = &LogicalType{Decimal: &DecimalType{scale, e.Precision}}
	case Int8, Int16, Uint8, Uint16, Uint32, Uint64: // int32 and int64 have no other meaning
		n := ConvertedInt8
		if of.unsigned {
			n = ConvertedUint8
		}
		for size := 8; size < of.bits; size *= 2 {
			n++
		}
		converted(n)
		e.Logical = &LogicalType{Integer: &IntegerType{int8(of.bits), !of.unsigned}}
	case Time, TimeUTC, Timestamp, TimestampUTC:
		n, utc := ConvertedTimeMillis, of.kind == TimeUTC || of.kind == TimestampUTC
		e.Logical = &LogicalType{Time: &TimeType{utc, of.unit.union()}}
		if of.kind == Timestamp || of.kind == TimestampUTC {
			n = ConvertedTimestampMillis
			e.Logical = &LogicalType{Timestamp: e.Logical.Time}
		}
		// Readers of converted types assume that all times are adjusted, and there is none for nanoseconds.
		if utc && of.unit != Nanos {
			converted(n + int32(of.unit-Millis))
		}
	}
	return e
}

func (u Unit) union() TimeUnit {
	return map[Unit]TimeUnit{Millis: {Millis: &Empty{}}, Micros: {Micros: &Empty{}}, Nanos: {Nanos: &Empty{}}}[u]
}

// unit returns the number of the unit. One that is not known is taken for nanoseconds.
func (u TimeUnit) unit() Unit {
	switch {
	case u.Millis != nil:
		return Millis
	case u.Micros != nil:
		return Micros
	}
	return Nanos
}

// Elements returns the schema of a file, depth first. Every column may be null. A list is a group
// around a repeated group, around a required element, which may be a list again. A struct is a group
// around its members.
func (s Schema) Elements() []SchemaElement {
	columns := s.All()
	list := []SchemaElement{{Name: "schema", Children: int32(len(columns))}}
	for _, c := range columns {
		if members := c.Type.Members(); members != nil {
			list = append(list, SchemaElement{Repetition: Optional, Name: c.Name, Children: int32(len(members))})
			for _, m := range members {
				list = append(list, m.Type.describe(m.Name, Optional))
			}
			continue
		}
		name, repetition, converted := c.Name, Optional, ConvertedList
		for range c.Depth() {
			list = append(list, SchemaElement{Repetition: repetition, Name: name, Children: 1, Converted: &converted, Logical: &LogicalType{List: &Empty{}}},
				SchemaElement{Repetition: Repeated, Name: "list", Children: 1})
			name, repetition = "element", Required
		}
		list = append(list, c.Type.Base().describe(name, repetition))
	}
	return list
}

// Meaning returns the logical type, also of an older file that has only a converted type.
func (e *SchemaElement) Meaning() LogicalType {
	switch {
	case e.Logical != nil:
		return *e.Logical
	case e.Converted == nil:
		return LogicalType{}
	}
	switch c := *e.Converted; c {
	case ConvertedUTF8:
		return LogicalType{String: &Empty{}}
	case ConvertedMap, ConvertedMapKeyValue:
		return LogicalType{Map: &Empty{}}
	case ConvertedList:
		return LogicalType{List: &Empty{}}
	case ConvertedEnum:
		return LogicalType{Enum: &Empty{}}
	case ConvertedJSON:
		return LogicalType{JSON: &Empty{}}
	case ConvertedDecimal:
		d := DecimalType{Digits: e.Precision}
		if e.Scale != nil {
			d.Scale = *e.Scale
		}
		return LogicalType{Decimal: &d}
	case ConvertedDate:
		return LogicalType{Date: &Empty{}}
	case ConvertedTimeMillis, ConvertedTimeMicros:
		return LogicalType{Time: &TimeType{true, (Millis + Unit(c-ConvertedTimeMillis)).union()}}
	case ConvertedTimestampMillis, ConvertedTimestampMicros:
		return LogicalType{Timestamp: &TimeType{true, (Millis + Unit(c-ConvertedTimestampMillis)).union()}}
	default:
		if c >= ConvertedUint8 && c <= ConvertedInt64 {
			return LogicalType{Integer: &IntegerType{Bits: 8 << ((c - ConvertedUint8) % 4), Signed: c >= ConvertedInt8}}
		}
	}
	return LogicalType{}
}

// Type returns the type of a typed output that the values of a column without children keep, and
// what the column is if that is not its own. The type is "" if the values decide.
func (e *SchemaElement) Type() (t Type, lost string) {
	m := e.Meaning()
	switch isFixed := *e.Physical == PhysicalFixed; {
	case m.Null != nil:
		return JSON, "null"
	case *e.Physical < PhysicalBytes:
		return e.number(m), ""
	case m.Decimal != nil:
		return Decimal(int(m.Decimal.Digits), int(m.Decimal.Scale)), ""
	case m.String != nil:
		return String, ""
	case m.Enum != nil:
		return String, "enum"
	case m.JSON != nil:
		return JSON, ""
	case m.UUID != nil && isFixed && e.Length == 16:
		return UUID, ""
	case m.Float16 != nil && isFixed && e.Length == 2:
		return Float32, "float16"
	case e.Converted != nil && *e.Converted == ConvertedInterval && isFixed && e.Length == 12: // months, days, milliseconds
		return JSON, "interval"
	case isFixed:
		return Type(fmt.Sprintf("binary(%d)", e.Length)), ""
	}
	return Bytes, ""
}

// number returns the type of a column that is stored as numbers.
func (e *SchemaElement) number(m LogicalType) Type {
	switch *e.Physical {
	case PhysicalBool:
		return Bool
	case PhysicalInt96:
		return Timestamp + "(ns)"
	case PhysicalFloat:
		return Float32
	case PhysicalDouble:
		return Float64
	}
	switch {
	case m.Decimal != nil:
		return Decimal(int(m.Decimal.Digits), int(m.Decimal.Scale))
	case m.Date != nil:
		return Date
	case m.Time != nil:
		return m.Time.typed(Time, TimeUTC)
	case m.Timestamp != nil:
		return m.Timestamp.typed(Timestamp, TimestampUTC)
	}
	bits, sign := 64, ""
	if *e.Physical == PhysicalInt32 {
		bits = 32
	}
	if m.Integer != nil {
		if m.Integer.Bits == 8 || m.Integer.Bits == 16 {
			bits = int(m.Integer.Bits)
		}
		if !m.Integer.Signed {
			sign = "u"
		}
	}
	return Type(sign + "int" + strconv.Itoa(bits))
}

func (t *TimeType) typed(local, utc Type) Type {
	if t.UTC {
		local = utc
	}
	return local + map[Unit]Type{Millis: "(ms)", Nanos: "(ns)"}[t.Unit.unit()]
}
