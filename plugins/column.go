package plugins

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// Column is a new member for every record of a batch, as typed values: an array of Width
// values per record, or a scalar if Width is 0. The worker encodes it as JSON.
type Column struct {
	Name  string
	Width int
	// shape has the dimensions of a record's values if there is more than one.
	shape  []int
	values values
}

// values holds the values of all records, one after another.
type values interface {
	kind() string
	count() int
	// appendOne appends the JSON of one value, appendArray that of several.
	appendOne(dst []byte, i int) []byte
	appendArray(dst []byte, from, to int) []byte
	// raw returns values as they are in memory, little-endian; nil for texts.
	raw(from, to int) []byte
	pack(c *protocol.Carrier) *kernelpb.Block
}

// series are values of one type.
type series[T any] struct {
	name  string
	list  []T
	write func(dst []byte, value T) []byte
}

func (s series[T]) kind() string { return s.name }

func (s series[T]) count() int { return len(s.list) }

func (s series[T]) appendOne(dst []byte, i int) []byte { return s.write(dst, s.list[i]) }

func (s series[T]) appendArray(dst []byte, from, to int) []byte {
	dst = append(dst, '[')
	for i, value := range s.list[from:to] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.write(dst, value)
	}
	return append(dst, ']')
}

// numbers are series with a binary form.
type numbers[T rawNumber] struct{ series[T] }

func (n numbers[T]) raw(from, to int) []byte { return rawBytes(n.list[from:to]) }

func (n numbers[T]) pack(c *protocol.Carrier) *kernelpb.Block {
	return protocol.Pack(c, [][]byte{rawBytes(n.list)})
}

type texts[T string | []byte] struct{ series[T] }

func (t texts[T]) raw(int, int) []byte { return nil }

func (t texts[T]) pack(c *protocol.Carrier) *kernelpb.Block { return protocol.Pack(c, t.list) }

// float32s are numbers whose arrays are written faster than one by one.
type float32s struct{ numbers[float32] }

func (f float32s) appendArray(dst []byte, from, to int) []byte {
	return jsonline.AppendFloat32s(dst, f.list[from:to])
}

// The kinds of columns that are not numbers.
const (
	KindString = "string"
	KindJSON   = "json"
	KindBytes  = "bytes"
)

// Float32s returns a column of numbers, written with the fewest digits that identify a
// float32. NaN and infinity become null.
func Float32s(name string, width int, values []float32) Column {
	return Column{Name: name, Width: width, values: float32s{numbers[float32]{series[float32]{"float32", values, func(dst []byte, f float32) []byte {
		dst, _ = jsonline.AppendFloat32(dst, f)
		return dst
	}}}}}
}

// Float64s returns a column of numbers. NaN and infinity become null.
func Float64s(name string, width int, values []float64) Column {
	return Column{Name: name, Width: width, values: numbers[float64]{series[float64]{"float64", values, func(dst []byte, f float64) []byte {
		dst, _ = jsonline.AppendFloat64(dst, f)
		return dst
	}}}}
}

// Int64s returns a column of integers.
func Int64s(name string, width int, values []int64) Column {
	return Column{Name: name, Width: width, values: numbers[int64]{series[int64]{"int64", values, jsonline.AppendInt}}}
}

// Bools returns a column of booleans, one per record.
func Bools(name string, values []bool) Column { return boolArrays(name, 0, values) }

func boolArrays(name string, width int, values []bool) Column {
	return Column{Name: name, Width: width, values: numbers[bool]{series[bool]{"bool", values, strconv.AppendBool}}}
}

// Strings returns a column of strings, one per record. Invalid UTF-8 becomes the
// replacement character.
func Strings(name string, values []string) Column {
	return Column{Name: name, values: texts[string]{series[string]{KindString, values, jsonline.AppendString[string]}}}
}

// JSON returns a column of encoded JSON values, one per record. The worker validates them.
func JSON(name string, values [][]byte) Column {
	verbatim := func(dst, value []byte) []byte { return append(dst, value...) }
	return Column{Name: name, values: texts[[]byte]{series[[]byte]{KindJSON, values, verbatim}}}
}

// Bytes returns a column of bytes, such as images, one value per record, nil for null. In a Parquet
// output, it is binary; in lines, base64.
func Bytes(name string, values [][]byte) Column {
	return Column{Name: name, values: blobs{texts[[]byte]{series[[]byte]{KindBytes, values, appendBase64}}}}
}

func appendBase64(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), value)
	return append(dst, '"')
}

// blobs are bytes, some of which may be null.
type blobs struct{ texts[[]byte] }

// pack sends one byte for each value before them: 0 for null.
func (b blobs) pack(c *protocol.Carrier) *kernelpb.Block {
	exist := make([]byte, len(b.list))
	for i, value := range b.list {
		if value != nil {
			exist[i] = 1
		}
	}
	return protocol.Pack(c, append([][]byte{exist}, b.list...))
}

// PackedBytes returns the column from what pack has sent.
func PackedBytes(name string, items [][]byte) (Column, error) {
	if len(items) == 0 || len(items[0]) != len(items)-1 {
		return Column{}, errors.New("the number of bytes that say which values exist is wrong")
	}
	values := make([][]byte, len(items)-1)
	for i, exists := range items[0] {
		if exists != 0 {
			values[i] = append([]byte{}, items[i+1]...)
		}
	}
	return Bytes(name, values), nil
}

// Numbers returns a column of float32, float64, int64 or bool from their bytes, which it copies:
// little-endian, and one for a boolean.
func Numbers(name, kind string, width int, data []byte) (Column, error) {
	switch kind {
	case "float32":
		return decodeNumbers(Float32s, name, width, data)
	case "float64":
		return decodeNumbers(Float64s, name, width, data)
	case "int64":
		return decodeNumbers(Int64s, name, width, data)
	case "bool":
		return decodeNumbers(boolArrays, name, width, data)
	}
	return Column{}, fmt.Errorf("this version does not know its type %q", kind)
}

func decodeNumbers[T rawNumber](column func(string, int, []T) Column, name string, width int, data []byte) (Column, error) {
	if len(data)%rawSize[T]() != 0 {
		return Column{}, fmt.Errorf("%d bytes are not a whole number of values", len(data))
	}
	return column(name, width, fromRaw[T](data)), nil
}

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

// Kind returns the type of the values: float32, float64, int64, bool, KindString, KindJSON or KindBytes.
func (c Column) Kind() string { return c.values.kind() }

// Raw returns the values of the records from up to to as they are in memory, little-endian; a
// boolean is one byte. It must not be used for strings and JSON. The caller must not change
// them.
func (c Column) Raw(from, to int) []byte {
	width := max(c.Width, 1)
	return c.values.raw(from*width, to*width)
}

// length returns the number of values.
func (c Column) length() int {
	if c.values == nil {
		return 0
	}
	return c.values.count()
}

// Rows returns the number of records that the column has values for; -1 if the number of
// values is not a multiple of the width.
func (c Column) Rows() int {
	n, width := c.length(), max(c.Width, 1)
	if n%width != 0 {
		return -1
	}
	return n / width
}

// Trusted reports whether AppendValue always writes valid JSON. It is false for values
// that the kernel encoded.
func (c Column) Trusted() bool { return c.Kind() != KindJSON }

// NonFinite counts the NaNs and infinities in record i's value. JSON cannot represent
// them: AppendValue writes null.
func (c Column) NonFinite(i int) int {
	width := max(c.Width, 1)
	switch v := c.values.(type) {
	case float32s:
		return countNonFinite(v.list[i*width : (i+1)*width])
	case numbers[float64]:
		return countNonFinite(v.list[i*width : (i+1)*width])
	}
	return 0
}

func countNonFinite[T float32 | float64](values []T) int {
	n := 0
	for _, v := range values {
		if v-v != 0 { // NaN - NaN and Inf - Inf are NaN
			n++
		}
	}
	return n
}

// AppendValue appends the JSON of record i's value to dst.
func (c Column) AppendValue(dst []byte, i int) []byte {
	switch {
	case len(c.shape) > 1:
		return c.appendNested(dst, c.shape, i*c.Width, c.Width)
	case c.Width > 0:
		return c.values.appendArray(dst, i*c.Width, (i+1)*c.Width)
	}
	return c.values.appendOne(dst, i)
}

// appendNested appends n values of several dimensions, from this number on.
func (c Column) appendNested(dst []byte, shape []int, from, n int) []byte {
	if len(shape) == 1 {
		return c.values.appendArray(dst, from, from+n)
	}
	each := n / shape[0]
	dst = append(dst, '[')
	for k := range shape[0] {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = c.appendNested(dst, shape[1:], from+k*each, each)
	}
	return append(dst, ']')
}
