package parquet

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Sample is the members of some records, with the types that their values have.
type Sample struct {
	// Columns are in the order in which they first occur. A type may be one that only a
	// sample has: that of null, or of an empty list.
	Columns []Column `json:"columns,omitempty"`
}

// Add adds a record. A line that is not an object has no members.
func (s *Sample) Add(line []byte) {
	jsonline.Members(line, func(_ []byte, name string, value []byte) bool {
		if name == ErrorColumn || name == "" {
			return true
		}
		at := Find(s.Columns, name)
		if at < 0 {
			at = len(s.Columns)
			s.Columns = append(s.Columns, Column{Name: name})
		}
		c := &s.Columns[at]
		c.Type = Widen(c.Type, typeOf(value, 0))
		return true
	})
}

// Type returns the type of a member, if some record has it.
func (s *Sample) Type(name string) (Type, bool) {
	at := Find(s.Columns, name)
	if at < 0 {
		return "", false
	}
	return s.Columns[at].Type, true
}

// Settled returns the type of a column: JSON, into which every value fits, if a sample had
// nothing but null or empty lists.
func (t Type) Settled() Type {
	if t.Base() == natural {
		return Int64 + t[len(natural):]
	}
	if t.known() {
		return t
	}
	return JSON
}

// typeOf returns the narrowest type of a value inside nested lists, "" for null.
func typeOf(value []byte, lists int) Type {
	switch c := value[0]; {
	case c == 'n':
		return ""
	case c == 't' || c == 'f':
		return Bool
	case c == '"':
		return String
	case c == '[' && lists < MaxDepth:
		return listOf(value, lists+1)
	case c == '-' || c >= '0' && c <= '9':
		if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			if c == '-' {
				return Int64
			}
			return natural
		}
		if _, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			return Uint64
		}
		if slices.ContainsFunc(value, func(c byte) bool { return c == '.' || c == 'e' || c == 'E' }) {
			return Float64
		}
	}
	return JSON // also an integer that is too large, and a list that is too deep
}

// listOf returns the type of an array: a list if its elements are all numbers, all strings, or
// all such lists. That of an empty array has no base.
func listOf(array []byte, lists int) (element Type) {
	nulls := false
	for value := range jsonline.Elements(array) {
		of := typeOf(value, lists)
		nulls = nulls || of == ""
		element = Widen(element, of)
		switch element.Base() {
		case natural, Int64, Uint64, Float64, String, "":
		default:
			return JSON
		}
	}
	if nulls && element != Float64 { // which has NaN
		return JSON
	}
	return element.List()
}

// Widen returns the type into which values of both types fit.
func Widen(a, b Type) Type {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	case a.IsList() && b.IsList():
		if w := Widen(a.element(), b.element()); w != JSON {
			return w.List()
		}
	case a == natural && b.isNumber():
		return b
	case b == natural && a.isNumber():
		return a
	case a.isNumber() && b.isNumber() && (a.isFloat() || b.isFloat()):
		return Float64
	}
	return JSON // also for int64 and uint64, neither of which has all values of the other
}

// Misfit is the error of a value that does not fit its column.
type Misfit struct {
	Name string
	Type Type // one that both the column's values and this one fit
	Err  error
}

// NewMisfit returns the error of a value that does not fit a column of this type.
func NewMisfit(name string, of Type, value []byte, err error) *Misfit {
	return &Misfit{Name: name, Type: Widen(of, typeOf(value, 0)).Settled(), Err: fmt.Errorf("column %q: %w", name, err)}
}

func (m *Misfit) Error() string { return m.Err.Error() }

// natural is the type, in a sample only, of whole numbers that are both int64 and uint64.
const natural Type = "natural"

func (t Type) isNumber() bool { return t == natural || t == Int64 || t == Uint64 || t.isFloat() }
func (t Type) isFloat() bool  { return t == Float32 || t == Float64 }
