package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
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
	case JSON:
		return parsed{text: append(buffer, value...)}, nil
	}
	return t.parseOther(buffer, value)
}

// parseOther is parse for the types that are less common.
func (t Type) parseOther(buffer, value []byte) (p parsed, err error) {
	of, _ := t.traits()
	if of.bits > 0 {
		return t.parseInteger(value, of.bits)
	}
	text := value
	if value[0] == '"' {
		text = value[1 : len(value)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = jsonline.AppendUnquoted(nil, value)
		}
	} else if of.kind != decimal {
		return p, misfit(value, t)
	}
	ok := false
	switch of.kind {
	case Date:
		var days int64
		days, ok = parseDate(text)
		p.bits, ok = uint64(days), ok && days == int64(int32(days))
	case Time, TimeUTC:
		p.bits, err = of.parseTime(text)
		ok = err == nil
	case Timestamp, TimestampUTC:
		p.bits, err = of.parseTimestamp(text)
		ok = err == nil
	case decimal:
		p.text, err = of.appendDecimal(buffer, text)
		ok = err == nil
	case UUID:
		p.text, ok = appendUUID(buffer, text)
	case fixed:
		p.text, err = base64.StdEncoding.AppendDecode(buffer, text)
		ok = err == nil && len(p.text) == of.length
		err = nil
	}
	switch {
	case err != nil:
		return parsed{}, fmt.Errorf("%w: %w", misfit(value, t), err)
	case !ok:
		return parsed{}, misfit(value, t)
	}
	return p, nil
}

// parseInteger reads a number of fewer than 64 bits, or one that is never negative.
func (t Type) parseInteger(value []byte, bits int) (parsed, error) {
	if t == Uint64 {
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			return parsed{bits: n}, nil
		}
	}
	p, err := parseInt(value)
	n := int64(p.bits)
	switch {
	case err != nil:
	case t == Uint64 && n >= 0:
		return p, nil
	case t.isUnsigned() && n >= 0 && n>>bits == 0:
		return p, nil
	case !t.isUnsigned() && n>>(bits-1) == n>>63:
		return p, nil
	}
	return parsed{}, misfit(value, t)
}

// appendUUID appends "00112233-4455-6677-8899-aabbccddeeff", in lower case.
func appendUUID(dst, text []byte) ([]byte, bool) {
	if len(text) != 36 {
		return dst, false
	}
	for i, c := range bytes.ToLower(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return dst, false
		}
		dst = append(dst, c)
	}
	return dst, true
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
	if strings.HasPrefix(string(t), "int") {
		return "an"
	}
	return "a"
}

// appendPlain appends a value in the encoding PLAIN. Booleans are packed in bits, which
// page does.
func (t Type) appendPlain(dst []byte, p parsed) []byte {
	switch t.physical() {
	case spec.PhysicalBool:
		return append(dst, byte(p.bits))
	case spec.PhysicalInt32, spec.PhysicalFloat:
		return binary.LittleEndian.AppendUint32(dst, uint32(p.bits))
	case spec.PhysicalInt64, spec.PhysicalDouble:
		return binary.LittleEndian.AppendUint64(dst, p.bits)
	case spec.PhysicalFixed:
		return append(dst, p.text...)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p.text)))
	return append(dst, p.text...)
}

// plainSize returns the number of bytes of a value in the encoding PLAIN, 0 if that depends on
// the value.
func (t Type) plainSize() int {
	of, _ := t.base().traits()
	return spec.Size(t.physical(), of.length)
}

// packBits packs booleans, a byte each, into bits.
func packBits(values []byte) []byte {
	packed := make([]byte, (len(values)+7)/8)
	for i, v := range values {
		packed[i/8] |= (v & 1) << (i % 8)
	}
	return packed
}
