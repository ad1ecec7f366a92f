package plugins

import (
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Column is one new member for every record of a batch, as typed values: an
// array of width values a record, or a scalar where width is 0. The worker
// writes it as JSON.
type Column struct {
	Name  string
	Width int
	// values is one of []float32, []float64, []int64, []bool, []string and
	// jsonValues.
	values any
}

type jsonValues [][]byte

// Float32s is a column of numbers written with the shortest digits that a
// float32 needs. NaN and infinity become null.
func Float32s(name string, width int, values []float32) Column {
	return Column{Name: name, Width: width, values: values}
}

// Float64s is a column of numbers. NaN and infinity become null.
func Float64s(name string, width int, values []float64) Column {
	return Column{Name: name, Width: width, values: values}
}

// Int64s is a column of whole numbers.
func Int64s(name string, width int, values []int64) Column {
	return Column{Name: name, Width: width, values: values}
}

// Bools is a column of true and false, one a record.
func Bools(name string, values []bool) Column { return Column{Name: name, values: values} }

// Strings is a column of strings, one a record. Bytes that are not UTF-8 become
// the replacement character.
func Strings(name string, values []string) Column { return Column{Name: name, values: values} }

// JSON is a column of encoded values, one a record. The worker checks them.
func JSON(name string, values [][]byte) Column {
	return Column{Name: name, values: jsonValues(values)}
}

// length is the number of values.
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

// rows is the number of records the column has values for; -1 if its values do
// not divide by its width.
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

// Trusted reports whether AppendValue gives valid JSON whatever the kernel did;
// false for encoded values, which are the kernel's own.
func (c Column) Trusted() bool {
	_, encoded := c.values.(jsonValues)
	return !encoded
}

// NonFinite counts the numbers of record i's value that JSON does not have, NaN and
// infinity: AppendValue writes null for them.
func (c Column) NonFinite(i int) int {
	switch v := c.values.(type) {
	case []float32:
		return countNonFinite(c.row(len(v), i), v)
	case []float64:
		return countNonFinite(c.row(len(v), i), v)
	}
	return 0
}

// row is where the values of record i begin and end.
func (c Column) row(n, i int) [2]int {
	width := max(c.Width, 1)
	return [2]int{min(n, i*width), min(n, (i+1)*width)}
}

func countNonFinite[T float32 | float64](row [2]int, values []T) int {
	n := 0
	for _, v := range values[row[0]:row[1]] {
		if v-v != 0 { // NaN for both
			n++
		}
	}
	return n
}

// AppendValue appends the JSON of record i's value to dst.
func (c Column) AppendValue(dst []byte, i int) []byte {
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
