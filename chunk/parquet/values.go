package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// valueParser appends JSON values of a type as values of a row. On an error, what it has appended
// is of no use.
type valueParser struct {
	typ     Type
	of      traits       // of a single value
	element *valueParser // of a list
	text    []byte       // scratch
}

func newValueParser(t Type) *valueParser {
	p := &valueParser{typ: t}
	if t.IsList() {
		p.element = newValueParser(t.element())
	} else {
		p.of, _ = t.traits()
	}
	return p
}

// add appends a value that is not null.
func (p *valueParser) add(dst, value []byte) ([]byte, error) {
	switch {
	case p.element != nil:
		return p.addList(dst, value)
	case p.of.kind == JSON:
		return appendSized(dst, value), nil
	case p.of.kind == Float64 || p.of.kind == Float32:
		return p.addFloat(dst, value)
	case p.of.bits > 0:
		return p.addInteger(dst, value)
	case p.of.kind == Bool:
		if string(value) != "true" && string(value) != "false" {
			return dst, misfit(value, p.typ)
		}
		return append(dst, truth(value[0] == 't')), nil
	}
	return p.addText(dst, value)
}

// addText is add for types whose values are strings in JSON; a decimal may be a number.
func (p *valueParser) addText(dst, value []byte) ([]byte, error) {
	text := value
	if value[0] == '"' {
		text = value[1 : len(value)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			p.text = jsonline.AppendUnquoted(p.text[:0], value)
			text = p.text
		}
	} else if p.of.kind != decimal {
		return dst, misfit(value, p.typ)
	}
	var n uint64
	var err error
	switch p.of.kind {
	case String:
		return appendSized(dst, text), nil
	case UUID:
		if text = bytes.ToLower(text); isUUID(text) {
			return appendSized(dst, text), nil
		}
		return dst, misfit(value, p.typ)
	case Bytes, fixed:
		data, err := base64.StdEncoding.AppendDecode(nil, text)
		switch {
		case err != nil || p.of.kind == fixed && len(data) != int(p.of.length):
			return dst, misfit(value, p.typ)
		case p.of.kind == fixed:
			return append(dst, data...), nil
		}
		return appendSized(dst, data), nil
	case decimal:
		dst, err = p.of.appendDecimal(dst, text)
	case Date:
		days, ok := parseDate(text)
		if !ok || days != int64(int32(days)) {
			return dst, misfit(value, p.typ)
		}
		dst = p.of.appendNumber(dst, uint64(days))
	case Time, TimeUTC:
		n, err = p.of.parseTime(text)
		dst = p.of.appendNumber(dst, n)
	case Timestamp, TimestampUTC:
		n, err = p.of.parseTimestamp(text)
		dst = p.of.appendNumber(dst, n)
	}
	if err != nil {
		return dst, fmt.Errorf("%w: %w", misfit(value, p.typ), err)
	}
	return dst, nil
}

// appendNumber appends the bits of a number.
func (of traits) appendNumber(dst []byte, bits uint64) []byte {
	if Size(of.physical, 0) == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(bits))
	}
	return binary.LittleEndian.AppendUint64(dst, bits)
}

// appendSized appends text after its length.
func appendSized(dst, text []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(text))), text...)
}

func truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// isUUID reports whether a text is written as "00112233-4455-6677-8899-aabbccddeeff".
func isUUID(text []byte) bool {
	for i, c := range text {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return len(text) == 36
}

// maxExact is the largest number up to which a float64 is exact for every integer.
const maxExact = 1 << 53

func (p *valueParser) addInteger(dst, value []byte) ([]byte, error) {
	if p.of.kind == Uint64 {
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			return p.of.appendNumber(dst, n), nil
		}
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil { // a whole number may be written as 1.0 or 1e3
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact || value[0] == '"' {
			return dst, misfit(value, p.typ)
		}
		n = int64(f)
	}
	fits := n>>(p.of.bits-1) == n>>63
	if p.of.unsigned {
		fits = n >= 0 && (p.of.bits == 64 || n>>p.of.bits == 0)
	}
	if !fits {
		return dst, misfit(value, p.typ)
	}
	return p.of.appendNumber(dst, uint64(n)), nil
}

func (p *valueParser) addFloat(dst, value []byte) ([]byte, error) {
	bits := 64
	if p.of.kind == Float32 {
		bits = 32
	}
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return dst, misfit(value, p.typ)
	}
	f, err := strconv.ParseFloat(string(value), bits)
	if err != nil {
		return dst, misfit(value, p.typ)
	}
	return p.of.appendFloat(dst, f), nil
}

func (of traits) appendFloat(dst []byte, f float64) []byte {
	if of.kind == Float32 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// addList appends a list. Among floats, null is NaN.
func (p *valueParser) addList(dst, array []byte) (_ []byte, err error) {
	if array[0] != '[' {
		return dst, misfit(array, p.typ)
	}
	at, n := len(dst), uint32(0)
	dst = append(dst, 0, 0, 0, 0)
	for value := range jsonline.Elements(array) {
		n++
		switch kind := p.element.of.kind; {
		case string(value) != "null" || kind == JSON:
			if dst, err = p.element.add(dst, value); err == nil {
				continue
			}
			if inner := p.element.element != nil && value[0] == '['; !inner { // which reports its own element
				err = fmt.Errorf("an element of the list: %w", err)
			}
			return dst, err
		case kind == Float32 || kind == Float64:
			dst = p.element.of.appendFloat(dst, math.NaN())
		default:
			return dst, fmt.Errorf("an element of the list is null, not %s %s", article(p.element.typ), p.element.typ)
		}
	}
	binary.LittleEndian.PutUint32(dst[at:], n)
	return dst, nil
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
