package columns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// AppendRaw appends values of the given kind, which are raw, as values of the column. It converts
// nothing but floats to half precision.
func (c Column) AppendRaw(dst []byte, kind Kind, raw []byte) []byte {
	if kind == c.Kind {
		return append(dst, raw...)
	}
	for ; len(raw) > 0; raw = raw[kind.Bytes():] {
		if kind == Float64 {
			dst = c.appendFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
		} else {
			dst = c.appendFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
	}
	return dst
}

// Takes reports whether the column can hold the values of another. Those with one dimension
// may stand for several.
func (c Column) Takes(o Column) bool {
	return c.Width == o.Width && (len(o.Dimensions) == 0 || slices.Equal(c.Dimensions, o.Dimensions)) &&
		(o.Kind == c.Kind || c.Kind == Float16 && (o.Kind == Float32 || o.Kind == Float64))
}

// AppendJSON appends a JSON value as values of the column. One list may stand for lists of
// lists. On an error it appends nothing.
func (c Column) AppendJSON(dst, value []byte) ([]byte, error) {
	dimensions := c.dimensions()
	if nested := bytes.HasPrefix(bytes.TrimSpace(value[1:]), []byte("[")); c.Width > 0 && !nested {
		dimensions = []int{c.Width}
	}
	longer, err := c.appendList(dst, value, dimensions)
	if err != nil {
		return dst, err
	}
	return longer, nil
}

// appendList appends a list with these dimensions, or a single value without any.
func (c Column) appendList(dst, value []byte, dimensions []int) (_ []byte, err error) {
	if len(dimensions) == 0 {
		return c.appendNumber(dst, value)
	}
	if value[0] != '[' {
		return dst, fmt.Errorf("%s is not a list of %d values", shortened(value), dimensions[0])
	}
	n := 0
	for element := range jsonline.Elements(value) {
		if dst, err = c.appendList(dst, element, dimensions[1:]); err != nil {
			return dst, fmt.Errorf("an element of the list: %w", err)
		}
		n++
	}
	if n != dimensions[0] {
		return dst, fmt.Errorf("a list of %d values instead of %d", n, dimensions[0])
	}
	return dst, nil
}

func (c Column) appendNumber(dst, value []byte) ([]byte, error) {
	text, bits := string(value), 64
	switch {
	case c.Kind == Bool && text == "true":
		return append(dst, 1), nil
	case c.Kind == Bool && text == "false":
		return append(dst, 0), nil
	case c.Kind == Bool:
	case c.Kind == Int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return binary.LittleEndian.AppendUint64(dst, uint64(n)), nil
		}
	case text == "null": // as lines write NaN
		return c.appendFloat(dst, math.NaN()), nil
	case isNumber(value):
		if c.Kind == Float32 { // rounded once
			bits = 32
		}
		if f, err := strconv.ParseFloat(text, bits); err == nil {
			return c.appendFloat(dst, f), nil
		}
	}
	return dst, fmt.Errorf("%s is not a value of type %s", shortened(value), c.Kind)
}

func (c Column) appendFloat(dst []byte, f float64) []byte {
	switch c.Kind {
	case Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
	case Float32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f)))
	}
	return npy.Float16(dst, float32(f))
}

func isNumber(value []byte) bool { return value[0] == '-' || value[0] >= '0' && value[0] <= '9' }

// shortened quotes a value in a message.
func shortened(value []byte) []byte {
	const most = 40
	if len(value) > most {
		return append(value[:most:most], "…"...)
	}
	return value
}

// errNotNumbers: only numbers and booleans have a kind.
var errNotNumbers = errors.New("it is neither a number, a boolean, nor a list of those")

// Infer returns the narrowest column that a JSON value fits in.
func Infer(name string, value []byte) (Column, error) {
	c := Column{Name: name}
	dimensions, err := c.infer(value)
	for _, n := range dimensions {
		c.Width = max(c.Width, 1) * n
	}
	if len(dimensions) > 1 {
		c.Dimensions = dimensions
	}
	return c, err
}

// infer widens the kind of the column by a value, and returns the value's dimensions.
func (c *Column) infer(value []byte) (dimensions []int, err error) {
	if value[0] != '[' {
		c.Kind, err = kindOf(c.Kind, value)
		return nil, err
	}
	n := 0
	for element := range jsonline.Elements(value) {
		inner, err := c.infer(element)
		if err != nil {
			return nil, err
		}
		if n++; n > 1 && !slices.Equal(inner, dimensions) {
			return nil, errors.New("its lists have different lengths")
		}
		dimensions = inner
	}
	if n == 0 {
		return nil, errors.New("it is an empty list")
	}
	return append([]int{n}, dimensions...), nil
}

// kindOf returns the kind of values of the kind before and of this one.
func kindOf(before Kind, value []byte) (Kind, error) {
	kind := Float64
	switch {
	case value[0] == 't' || value[0] == 'f':
		kind = Bool
	case value[0] == 'n' && before != "": // NaN among numbers
	case !isNumber(value):
		return "", errNotNumbers
	default:
		if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			kind = Int64
		}
	}
	switch {
	case before == "" || before == kind:
		return kind, nil
	case before == Bool || kind == Bool:
		return "", errNotNumbers
	}
	return Float64, nil
}
