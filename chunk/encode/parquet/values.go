package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// parsed is a value of a line. The bytes of strings, JSON and Bytes are appended to the
// buffer given to parse.
type parsed struct {
	null bool
	bits uint64 // of a boolean or a number
	text []byte
}

// parse reads a JSON value of a column.
func (t Type) parse(buffer, value []byte) (p parsed, err error) {
	if string(value) == "null" {
		return parsed{null: true}, nil
	}
	switch t {
	case Bool:
		return parseBool(value)
	case Int64:
		return parseInt(value)
	case Float64:
		return parseFloat(value, 64)
	case Float32:
		return parseFloat(value, 32)
	case String:
		if value[0] != '"' {
			return p, misfit(value, t)
		}
		return parsed{text: jsonline.AppendUnquoted(buffer, value)}, nil
	case Bytes:
		if value[0] != '"' {
			return p, misfit(value, t)
		}
		text, err := base64.StdEncoding.AppendDecode(buffer, jsonline.AppendUnquoted(nil, value))
		if err != nil {
			return p, misfit(value, t)
		}
		return parsed{text: text}, nil
	}
	return parsed{text: append(buffer, value...)}, nil
}

// check returns an error if a JSON value is not of the type.
func (t Type) check(value []byte) error {
	switch {
	case t == JSON, t == String && (value[0] == '"' || value[0] == 'n'):
		return nil // without a copy of the text
	case !t.isList():
		_, err := t.parse(nil, value)
		return err
	}
	return t.eachElement(value, func(parsed, levels) {})
}

// eachElement calls add for the values in a JSON array, which is a value of a list type, and
// for lists without elements, as null. It does not call it for null itself. After an error,
// add may have been called.
func (t Type) eachElement(array []byte, add func(parsed, levels)) error {
	if string(array) == "null" {
		return nil
	}
	n := nested{present: byte(t.depth() + 1), add: add}
	return n.list(t, array, levels{definition: 1})
}

// nested walks through lists of lists.
type nested struct {
	present byte // the level of definition of a value
	add     func(parsed, levels)
	buffer  []byte
}

// list adds the elements of a list of type t. at are its levels if it is empty.
func (n *nested) list(t Type, array []byte, at levels) error {
	if array[0] != '[' {
		return misfit(array, t)
	}
	element, next := t.element(), levels{at.repetition, at.definition + 1}
	for rest := array[1:]; ; next.repetition = at.definition {
		var value []byte
		switch value, rest = nextElement(rest); {
		case value == nil && next.repetition == at.repetition: // the first one
			n.add(parsed{null: true}, at)
			return nil
		case value == nil:
			return nil
		}
		var err error
		if element.isList() && value[0] == '[' {
			err = n.list(element, value, next)
		} else {
			err = n.value(element, value, levels{next.repetition, n.present})
		}
		if err != nil {
			return err
		}
	}
}

// value adds an element that is not a list.
func (n *nested) value(element Type, value []byte, at levels) error {
	p, err := parsed{null: string(value) == "null"}, error(nil)
	switch {
	case element.isList() && !p.null:
		err = misfit(value, element)
	case !element.isList():
		p, err = element.parse(n.buffer[:0], value)
	}
	switch {
	case err != nil:
		return fmt.Errorf("an element of the list: %w", err)
	case p.null && element == Float32:
		p = parsed{bits: uint64(math.Float32bits(float32(math.NaN())))}
	case p.null && element == Float64:
		p = parsed{bits: math.Float64bits(math.NaN())}
	case p.null && element == JSON:
		p = parsed{text: append(n.buffer[:0], value...)}
	case p.null:
		return fmt.Errorf("an element of the list is null, not %s %s", article(element), element)
	}
	if p.text != nil {
		n.buffer = p.text
	}
	n.add(p, at)
	return nil
}

// nextElement returns the first element of the rest of a valid array, nil at its end, and
// what follows it.
func nextElement(rest []byte) (value, after []byte) {
	start, depth := -1, 0
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			if start < 0 {
				start = i
			}
			for i++; rest[i] != '"'; i++ {
				if rest[i] == '\\' {
					i++
				}
			}
		case depth == 0 && (c == ',' || c == ']'):
			if start < 0 { // an empty array, or the end
				return nil, nil
			}
			after = rest[i+1:]
			if c == ']' {
				after = nil
			}
			return bytes.TrimRight(rest[start:i], " \t\r\n"), after
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		default:
			if start < 0 {
				start = i
			}
			if c == '[' || c == '{' {
				depth++
			} else if c == ']' || c == '}' {
				depth--
			}
		}
	}
	return nil, nil
}

func parseBool(value []byte) (parsed, error) {
	switch string(value) {
	case "true":
		return parsed{bits: 1}, nil
	case "false":
		return parsed{}, nil
	}
	return parsed{}, misfit(value, Bool)
}

// maxExact is the largest number up to which a float64 is exact for every integer.
const maxExact = 1 << 53

func parseInt(value []byte) (parsed, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err == nil {
		return parsed{bits: uint64(n)}, nil
	}
	// A whole number may be written as 1.0 or 1e3.
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact || value[0] == '"' {
		return parsed{}, misfit(value, Int64)
	}
	return parsed{bits: uint64(int64(f))}, nil
}

func parseFloat(value []byte, bits int) (parsed, error) {
	t := Float64
	if bits == 32 {
		t = Float32
	}
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return parsed{}, misfit(value, t)
	}
	f, err := strconv.ParseFloat(string(value), bits)
	if err != nil {
		return parsed{}, misfit(value, t)
	}
	if bits == 32 {
		return parsed{bits: uint64(math.Float32bits(float32(f)))}, nil
	}
	return parsed{bits: math.Float64bits(f)}, nil
}

// misfit reports that a value does not have the type of its column.
func misfit(value []byte, t Type) error {
	const most = 40
	if len(value) > most {
		value = append(value[:most:most], "…"...)
	}
	return fmt.Errorf("%s is not %s %s", value, article(t), t)
}

func article(t Type) string {
	if t.base() == Int64 {
		return "an"
	}
	return "a"
}

// appendPlain appends a value in the encoding PLAIN. Booleans are packed in bits, which
// page does.
func (t Type) appendPlain(dst []byte, p parsed) []byte {
	switch t {
	case Bool:
		return append(dst, byte(p.bits))
	case Float32:
		return binary.LittleEndian.AppendUint32(dst, uint32(p.bits))
	case Int64, Float64:
		return binary.LittleEndian.AppendUint64(dst, p.bits)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p.text)))
	return append(dst, p.text...)
}

// packBits packs booleans, a byte each, into bits.
func packBits(values []byte) []byte {
	packed := make([]byte, (len(values)+7)/8)
	for i, v := range values {
		packed[i/8] |= (v & 1) << (i % 8)
	}
	return packed
}
