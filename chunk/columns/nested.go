package columns

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// elements yields the elements of a JSON list of numbers or of such lists.
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		inner := bytes.TrimSpace(list[1 : len(list)-1])
		if len(inner) == 0 {
			return
		}
		depth, start := 0, 0
		for i, b := range inner {
			switch {
			case b == '[':
				depth++
			case b == ']':
				depth--
			case b == ',' && depth == 0:
				if !yield(bytes.TrimSpace(inner[start:i])) {
					return
				}
				start = i + 1
			}
		}
		yield(bytes.TrimSpace(inner[start:]))
	}
}

// isNested reports whether a JSON value is a list of lists without strings.
func isNested(value []byte) bool {
	return value[0] == '[' && bytes.HasPrefix(bytes.TrimSpace(value[1:]), []byte("[")) && bytes.IndexByte(value, '"') < 0
}

// appendNested appends a JSON list of lists as values of a column with these dimensions.
func (c Column) appendNested(dst, value []byte, dimensions []int) (_ []byte, err error) {
	row := Column{Name: c.Name, Kind: c.Kind, Width: dimensions[0]}
	if len(dimensions) == 1 {
		if isNested(value) {
			return dst, errors.New("a list with too many dimensions")
		}
		return row.AppendJSON(dst, value)
	}
	if len(value) < 2 || value[0] != '[' {
		return dst, fmt.Errorf("%s is not a list of %d lists", shortened(value), dimensions[0])
	}
	start, n := len(dst), 0
	for element := range elements(value) {
		if len(element) == 0 {
			return dst[:start], errNotNumbers
		}
		if dst, err = c.appendNested(dst, element, dimensions[1:]); err != nil {
			return dst[:start], err
		}
		n++
	}
	if n != dimensions[0] {
		return dst[:start], fmt.Errorf("a list of %d lists instead of %d", n, dimensions[0])
	}
	return dst, nil
}

// inferNested returns the narrowest column that a JSON list of lists fits in.
func inferNested(name string, value []byte) (c Column, err error) {
	n := 0
	for element := range elements(value) {
		if len(element) == 0 {
			return c, errNotNumbers
		}
		row, err := Infer(name, element)
		if err != nil {
			return c, err
		}
		if row.Width == 0 {
			return c, errNotNumbers
		}
		if len(row.Dimensions) == 0 {
			row.Dimensions = []int{row.Width}
		}
		switch {
		case n == 0:
			c = row
		case !slices.Equal(c.Dimensions, row.Dimensions):
			return c, errors.New("its lists have different lengths")
		case c.Kind != row.Kind && (c.Kind == Bool || row.Kind == Bool):
			return c, errNotNumbers
		case c.Kind != row.Kind:
			c.Kind = Float64
		}
		n++
	}
	c.Width *= n
	c.Dimensions = append([]int{n}, c.Dimensions...)
	return c, nil
}
