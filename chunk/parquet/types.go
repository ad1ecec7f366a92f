package parquet

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is the type of a column's values. Some have parameters: "decimal(38,10)".
type Type string

// The types of columns without parameters.
const (
	Bool    Type = "bool"
	Int8    Type = "int8"
	Int16   Type = "int16"
	Int32   Type = "int32"
	Int64   Type = "int64"
	Uint8   Type = "uint8"
	Uint16  Type = "uint16"
	Uint32  Type = "uint32"
	Uint64  Type = "uint64"
	Float32 Type = "float32"
	Float64 Type = "float64"
	String  Type = "string"
	// JSON is any value, as its JSON text.
	JSON Type = "json"
	// Bytes is binary data, in base64 in a line.
	Bytes Type = "bytes"
	// UUID is a string: "00112233-4455-6677-8899-aabbccddeeff".
	UUID Type = "uuid"
	// Date is a day: "2026-01-31".
	Date Type = "date"
	// Time is a time of day in microseconds: "23:59:59.123456". TimeUTC is the same, marked as
	// adjusted to UTC, which some writers do.
	Time    Type = "time"
	TimeUTC Type = "timetz"
	// Timestamp is a date and a time without a zone, TimestampUTC a moment.
	Timestamp    Type = "timestamp"
	TimestampUTC Type = "timestamptz"

	// With the precision and the scale in parentheses.
	decimal Type = "decimal"
	// With the number of bytes in parentheses.
	fixed Type = "binary"
	// With the members in parentheses, in their order: bytes and path.
	structure Type = "struct"
)

// typeNames is the list of types for messages.
const typeNames = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, decimal(P,S), string, json, bytes or binary, binary(N), struct(bytes,path), uuid, " +
	"date, time, timestamp, timestamptz (the last three also in other units: timestamp(ms), timestamp(ns))"

// listSuffix follows the type of the elements of a list: "float32[]", or "float32[][]" for
// lists of lists. In a line, a list is an array. Its elements are never null, except that null
// among floats is NaN.
const listSuffix = "[]"

// MaxDepth is how many lists may be nested.
const MaxDepth = 8

// Members returns the members of a struct, nil for another type.
func (t Type) Members() (list []Column) {
	of, _ := t.traits()
	if of.kind != structure {
		return nil
	}
	for name := range strings.SplitSeq(string(t[len(structure)+1:len(t)-1]), ",") {
		list = append(list, Column{Name: name, Type: map[string]Type{BytesMember: Bytes, PathMember: String}[name]})
	}
	return list
}

// List returns the type of lists of t.
func (t Type) List() Type { return t + listSuffix }

// IsList reports whether values are lists.
func (t Type) IsList() bool { return strings.HasSuffix(string(t), listSuffix) }

// element returns the type of a list's elements, or the type itself.
func (t Type) element() Type { return Type(strings.TrimSuffix(string(t), listSuffix)) }

// Base returns the type of the values in a list, or in lists of lists; else the type itself.
func (t Type) Base() Type {
	for t.IsList() {
		t = t.element()
	}
	return t
}

// Depth returns how many lists are nested around a value.
func (t Type) Depth() int { return (len(t) - len(t.Base())) / len(listSuffix) }

// known reports whether a column can have the type.
func (t Type) known() bool {
	of, ok := t.Base().traits()
	return ok && t.Depth() <= MaxDepth && (of.kind != structure || !t.IsList())
}

// ParseType returns the type with the given name: that of a single value, a list, "float32[]",
// or a list of lists, "float32[][]".
func ParseType(name string) (Type, error) {
	t := Type(strings.ReplaceAll(name, " ", ""))
	switch base := t.Base(); base {
	case fixed: // of any length
		t = Bytes + t[len(base):]
	case Time + "(us)", TimeUTC + "(us)", Timestamp + "(us)", TimestampUTC + "(us)":
		t = base[:len(base)-len("(us)")] + t[len(base):]
	}
	if t.known() {
		return t, nil
	}
	if reason := t.Base().wrongParameters(); reason != "" {
		return "", fmt.Errorf("column type %q: %s", name, reason)
	}
	return "", fmt.Errorf("unknown column type %q; the types are %s, and lists of them, such as float32[], float32[128] or float32[][]", name, typeNames)
}

// ParseListType is ParseType for the type of a column, which may say how many elements each list has:
// "float32[128]". length is 0 if it does not.
func ParseListType(name string) (t Type, length int, err error) {
	base, inside, ok := strings.Cut(name, "[")
	if digits, list := strings.CutSuffix(inside, "]"); ok && list {
		if length = parameter(digits); length > 0 {
			t, err = ParseType(base + listSuffix)
			return t, length, err
		}
	}
	t, err = ParseType(name)
	return t, 0, err
}

// traits are what a type of single values is made of.
type traits struct {
	kind Type // without its parameters
	// physical is how values are stored.
	physical int32
	// length is the number of bytes of a value of fixed length.
	length int32
	// bits is the size of an integer.
	bits     int
	unsigned bool
	// digits and scale describe a decimal: how many digits, and how many of them after the point.
	digits, scale int
	unit          Unit // of a time
}

// simple are the types without parameters.
var simple = map[Type]traits{
	Bool: {physical: PhysicalBool}, Float32: {physical: PhysicalFloat}, Float64: {physical: PhysicalDouble},
	String: {physical: PhysicalBytes}, JSON: {physical: PhysicalBytes}, UUID: {physical: PhysicalBytes}, Bytes: {physical: PhysicalBytes},
	Int8: {physical: PhysicalInt32, bits: 8}, Int16: {physical: PhysicalInt32, bits: 16}, Int32: {physical: PhysicalInt32, bits: 32}, Int64: {physical: PhysicalInt64, bits: 64},
	Uint8: {physical: PhysicalInt32, bits: 8, unsigned: true}, Uint16: {physical: PhysicalInt32, bits: 16, unsigned: true},
	Uint32: {physical: PhysicalInt32, bits: 32, unsigned: true}, Uint64: {physical: PhysicalInt64, bits: 64, unsigned: true},
	Date: {physical: PhysicalInt32}, Time: {physical: PhysicalInt64, unit: Micros}, TimeUTC: {physical: PhysicalInt64, unit: Micros},
	Timestamp: {physical: PhysicalInt64, unit: Micros}, TimestampUTC: {physical: PhysicalInt64, unit: Micros},
}

// The limits of parameters.
const (
	maxDigits = 76
	// MaxFixed limits the bytes of fixed-length values.
	MaxFixed = 1 << 20
)

// traits returns what the type is made of, if it is a type of single values.
func (t Type) traits() (of traits, ok bool) {
	if of, ok = simple[t]; ok {
		of.kind = t
		return of, true
	}
	at := strings.IndexByte(string(t), '(')
	if at < 0 || t[len(t)-1] != ')' {
		return traits{}, false
	}
	of.kind = t[:at]
	parameters := string(t[at+1 : len(t)-1])
	switch of.kind {
	case Time, TimeUTC, Timestamp, TimestampUTC:
		of.unit, of.physical = units[parameters], PhysicalInt64
		if of.unit == Millis && (of.kind == Time || of.kind == TimeUTC) {
			of.physical = PhysicalInt32
		}
		return of, of.unit != 0
	case fixed:
		n := parameter(parameters)
		of.physical, of.length = PhysicalFixed, int32(n)
		return of, n >= 1 && n <= MaxFixed
	case decimal:
		digits, scale, _ := strings.Cut(parameters, ",")
		of.digits, of.scale = parameter(digits), parameter(scale)
		if of.digits < 1 || of.digits > maxDigits || of.scale < 0 || of.scale > of.digits {
			return traits{}, false
		}
		of.physical, of.length = PhysicalFixed, int32(power(of.digits).BitLen()/8+1) // with the sign
		return of, true
	case structure:
		return of, parameters == "bytes,path" || parameters == "path,bytes"
	}
	return traits{}, false
}

// parameter parses a number in a type's name; -1 if the text is not written as one.
func parameter(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return -1
	}
	return n
}

// wrongParameters returns what is wrong with a type of a known kind; "" if the kind is unknown.
func (t Type) wrongParameters() string {
	kind, _, _ := strings.Cut(string(t), "(")
	switch Type(kind) {
	case decimal:
		return fmt.Sprintf("a decimal has up to %d digits, and how many of them follow the point: decimal(38,10)", maxDigits)
	case fixed:
		return fmt.Sprintf("write binary, or binary(16) for values of 16 bytes, at most %d", MaxFixed)
	case structure:
		return "a struct has the members bytes and path, and cannot be in a list; write struct(bytes,path)"
	case Time, TimeUTC, Timestamp, TimestampUTC:
		return fmt.Sprintf("the units are ms, us and ns: %s(ns)", kind)
	}
	return ""
}
