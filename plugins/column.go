package plugins

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/rawnum"
)

// Column is a new member for every record of a batch, as typed values: an array of Width
// values per record, or a scalar if Width is 0. The worker encodes it as JSON.
type Column struct {
	Name  string
	Width int
	// shape has the dimensions of a record's values if there is more than one.
	shape []int
	// values is one of []float32, []float64, []int64, []bool, []string and
	// jsonValues.
	values any
}

type jsonValues [][]byte

// Shaped returns the column with values of several dimensions: Shaped(16, 128) for 16 rows of
// 128 values per record, one row after another. Their product must be the width. In lines, they
// become nested arrays. It must not be used for strings and JSON. gpurun 1.0 writes such a
// column as one array.
func (c Column) Shaped(dimensions ...int) Column {
	c.shape = nil
	if len(dimensions) > 1 {
		c.shape = dimensions
	}
	return c
}

// Shape returns the dimensions of a record's values if there is more than one, else nil.
func (c Column) Shape() []int { return c.shape }

// shapeWidth returns how many values the dimensions hold; -1 if they are impossible.
func (c Column) shapeWidth() int {
	width := 1
	for _, n := range c.shape {
		if n < 1 || n > math.MaxInt32/width {
			return -1
		}
		width *= n
	}
	return width
}

// The kinds of columns that are not numbers.
const (
	KindString = "string"
	KindJSON   = "json"
)

// Kind returns the type of the values: float32, float64, int64, bool, KindString or KindJSON.
func (c Column) Kind() string {
	switch c.values.(type) {
	case []float32:
		return "float32"
	case []float64:
		return "float64"
	case []int64:
		return "int64"
	case []bool:
		return "bool"
	case []string:
		return KindString
	}
	return KindJSON
}

// AppendRaw appends record i's values to dst as they are in memory, little-endian; a boolean
// is one byte. It must not be used for strings and JSON.
func (c Column) AppendRaw(dst []byte, i int) []byte {
	switch v := c.values.(type) {
	case []float32:
		return appendRaw(dst, v, c.row(len(v), i), 4)
	case []float64:
		return appendRaw(dst, v, c.row(len(v), i), 8)
	case []int64:
		return appendRaw(dst, v, c.row(len(v), i), 8)
	case []bool:
		row := c.row(len(v), i)
		at := len(dst)
		dst = append(dst, make([]byte, row[1]-row[0])...)
		rawnum.PutBools(dst[at:], v[row[0]:row[1]])
	}
	return dst
}

// Raw returns the values of the records from up to to, as AppendRaw appends them. They are
// the column's own memory or in buffer.
func (c Column) Raw(buffer []byte, from, to int) []byte {
	switch v := c.values.(type) {
	case []float32:
		return rawOf(buffer, v[c.row(len(v), from)[0]:c.row(len(v), to)[0]])
	case []float64:
		return rawOf(buffer, v[c.row(len(v), from)[0]:c.row(len(v), to)[0]])
	case []int64:
		return rawOf(buffer, v[c.row(len(v), from)[0]:c.row(len(v), to)[0]])
	}
	buffer = buffer[:0]
	for i := from; i < to; i++ {
		buffer = c.AppendRaw(buffer, i)
	}
	return buffer
}

func rawOf[T rawnum.Number](buffer []byte, values []T) []byte {
	if raw, ok := rawnum.View(values); ok {
		return raw
	}
	return appendRaw(buffer[:0], values, [2]int{0, len(values)}, binary.Size(values)/max(len(values), 1))
}

func appendRaw[T rawnum.Number](dst []byte, values []T, row [2]int, size int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, size*(row[1]-row[0]))...)
	rawnum.Put(dst[at:], values[row[0]:row[1]])
	return dst
}

// Float32s returns a column of numbers, written with the fewest digits that identify a
// float32. NaN and infinity become null.
func Float32s(name string, width int, values []float32) Column {
	return Column{Name: name, Width: width, values: values}
}

// Float64s returns a column of numbers. NaN and infinity become null.
func Float64s(name string, width int, values []float64) Column {
	return Column{Name: name, Width: width, values: values}
}

// Int64s returns a column of integers.
func Int64s(name string, width int, values []int64) Column {
	return Column{Name: name, Width: width, values: values}
}

// Bools returns a column of booleans, one per record.
func Bools(name string, values []bool) Column { return Column{Name: name, values: values} }

// Strings returns a column of strings, one per record. Invalid UTF-8 becomes the
// replacement character.
func Strings(name string, values []string) Column { return Column{Name: name, values: values} }

// JSON returns a column of encoded JSON values, one per record. The worker validates them.
func JSON(name string, values [][]byte) Column {
	return Column{Name: name, values: jsonValues(values)}
}

// length returns the number of values.
func (c Column) length() int {
	switch v := c.values.(type) {
	case []float32:
		return len(v)
	case []float64:
		return len(v)
	case []int64:
		return len(v)
	case []bool:
		return len(v)
	case []string:
		return len(v)
	case jsonValues:
		return len(v)
	}
	return 0
}

// rows returns the number of records that the column has values for; -1 if the number of
// values is not a multiple of the width.
func (c Column) rows() int {
	n := c.length()
	if c.Width <= 0 {
		return n
	}
	if n%c.Width != 0 {
		return -1
	}
	return n / c.Width
}

// Trusted reports whether AppendValue always writes valid JSON. It is false for values
// that the kernel encoded.
func (c Column) Trusted() bool {
	_, encoded := c.values.(jsonValues)
	return !encoded
}

// NonFinite counts the NaNs and infinities in record i's value. JSON cannot represent
// them: AppendValue writes null.
func (c Column) NonFinite(i int) int {
	switch v := c.values.(type) {
	case []float32:
		return countNonFinite(c.row(len(v), i), v)
	case []float64:
		return countNonFinite(c.row(len(v), i), v)
	}
	return 0
}

// row returns where the values of record i begin and end.
func (c Column) row(n, i int) [2]int {
	width := max(c.Width, 1)
	return [2]int{min(n, i*width), min(n, (i+1)*width)}
}

func countNonFinite[T float32 | float64](row [2]int, values []T) int {
	n := 0
	for _, v := range values[row[0]:row[1]] {
		if v-v != 0 { // NaN - NaN and Inf - Inf are NaN
			n++
		}
	}
	return n
}

// AppendValue appends the JSON of record i's value to dst.
func (c Column) AppendValue(dst []byte, i int) []byte {
	if len(c.shape) > 1 {
		dst, _ = c.appendNested(dst, c.shape, i*c.Width)
		return dst
	}
	switch v := c.values.(type) {
	case []float32:
		if c.Width > 0 {
			return jsonline.AppendFloat32s(dst, v[i*c.Width:(i+1)*c.Width])
		}
		return appendArray(dst, 0, i, v, func(dst []byte, f float32) []byte {
			dst, _ = jsonline.AppendFloat32(dst, f)
			return dst
		})
	case []float64:
		return appendArray(dst, c.Width, i, v, func(dst []byte, f float64) []byte {
			dst, _ = jsonline.AppendFloat64(dst, f)
			return dst
		})
	case []int64:
		return appendArray(dst, c.Width, i, v, jsonline.AppendInt)
	case []bool:
		return appendArray(dst, c.Width, i, v, strconv.AppendBool)
	case []string:
		return appendArray(dst, c.Width, i, v, jsonline.AppendString)
	case jsonValues:
		return appendArray(dst, c.Width, i, v, func(dst, value []byte) []byte {
			return append(dst, value...)
		})
	}
	return append(dst, "null"...)
}

// appendNested appends values of several dimensions, the first of which has this number, and
// returns the number after the last.
func (c Column) appendNested(dst []byte, shape []int, at int) ([]byte, int) {
	if len(shape) == 1 {
		row := c
		row.Width, row.shape = shape[0], nil
		return row.AppendValue(dst, at/shape[0]), at + shape[0]
	}
	dst = append(dst, '[')
	for k := range shape[0] {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst, at = c.appendNested(dst, shape[1:], at)
	}
	return append(dst, ']'), at
}

func appendArray[T any](dst []byte, width, i int, values []T, one func([]byte, T) []byte) []byte {
	if width <= 0 {
		return one(dst, values[i])
	}
	dst = append(dst, '[')
	for j, value := range values[i*width : (i+1)*width] {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, value)
	}
	return append(dst, ']')
}
