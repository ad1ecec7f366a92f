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
)

// AppendRaw appends values of the given kind, which are raw, as values of the column. The
// only conversion is that of floats to half precision.
func (c Column) AppendRaw(dst []byte, kind Kind, raw []byte) []byte {
	if kind == c.Kind {
		return append(dst, raw...)
	}
	for ; len(raw) > 0; raw = raw[kind.Bytes():] {
		if kind == Float64 {
			dst = npy.Float16(dst, []float32{float32(math.Float64frombits(binary.LittleEndian.Uint64(raw)))})
		} else {
			dst = npy.Float16(dst, []float32{math.Float32frombits(binary.LittleEndian.Uint32(raw))})
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

// AppendJSON appends a JSON value as values of the column. On an error it appends nothing.
func (c Column) AppendJSON(dst, value []byte) ([]byte, error) {
	start := len(dst)
	if c.Width == 0 {
		return c.appendNumber(dst, value)
	}
	if len(c.Dimensions) > 0 && isNested(value) {
		return c.appendNested(dst, value, c.Dimensions)
	}
	if value[0] != '[' {
		return dst, fmt.Errorf("%s is not a list of %d values", shortened(value), c.Width)
	}
	n := 0
	for rest := value[1 : len(value)-1]; ; n++ {
		element, after, more := bytes.Cut(rest, []byte(","))
		if element = bytes.TrimSpace(element); len(element) == 0 {
			break // an empty list
		}
		var err error
		if dst, err = c.appendNumber(dst, element); err != nil {
			return dst[:start], fmt.Errorf("an element of the list: %w", err)
		}
		if rest = after; !more {
			n++
			break
		}
	}
	if n != c.Width {
		return dst[:start], fmt.Errorf("a list of %d values instead of %d", n, c.Width)
	}
	return dst, nil
}

func (c Column) appendNumber(dst, value []byte) ([]byte, error) {
	misfit := fmt.Errorf("%s is not a value of type %s", shortened(value), c.Kind)
	switch c.Kind {
	case Bool:
		switch string(value) {
		case "true":
			return append(dst, 1), nil
		case "false":
			return append(dst, 0), nil
		}
		return dst, misfit
	case Int64:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return dst, misfit
		}
		return binary.LittleEndian.AppendUint64(dst, uint64(n)), nil
	}
	f := math.NaN() // which lines write as null
	if string(value) != "null" {
		var err error
		if !isNumber(value) {
			return dst, misfit
		}
		if f, err = strconv.ParseFloat(string(value), 64); err != nil {
			return dst, misfit
		}
	}
	switch c.Kind {
	case Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), nil
	case Float32:
		if string(value) != "null" { // rounded once
			single, _ := strconv.ParseFloat(string(value), 32)
			f = single
		}
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), nil
	}
	return npy.Float16(dst, []float32{float32(f)}), nil
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
	if isNested(value) {
		return inferNested(name, value)
	}
	if value[0] != '[' {
		var err error
		c.Kind, err = kindOf("", value)
		return c, err
	}
	for rest := value[1 : len(value)-1]; ; c.Width++ {
		element, after, more := bytes.Cut(rest, []byte(","))
		if element = bytes.TrimSpace(element); len(element) == 0 {
			return c, errors.New("it is an empty list")
		}
		var err error
		if c.Kind, err = kindOf(c.Kind, element); err != nil {
			return c, err
		}
		if rest = after; !more {
			c.Width++
			return c, nil
		}
	}
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
