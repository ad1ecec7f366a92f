package csv

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// column is a column that is read.
type column struct {
	name   string
	index  int
	kind   string
	prefix []byte // `{"name":` or `,"name":`
	write  writer
}

// writer appends a value as JSON. It returns false if the value does not have the type of
// its column.
type writer func(dst, value []byte) ([]byte, bool)

// writers are the types of columns. An empty value of a column that is not text is null.
var writers = map[string]writer{
	"string": func(dst, value []byte) ([]byte, bool) { return jsonline.AppendString(dst, value), true },
	"int64": orNull(func(dst, value []byte) ([]byte, bool) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		return strconv.AppendInt(dst, n, 10), err == nil
	}),
	"uint64": orNull(func(dst, value []byte) ([]byte, bool) {
		n, err := strconv.ParseUint(string(value), 10, 64)
		return strconv.AppendUint(dst, n, 10), err == nil
	}),
	optionalText: orNull(func(dst, value []byte) ([]byte, bool) { return jsonline.AppendString(dst, value), true }),
	"float64": orNull(func(dst, value []byte) ([]byte, bool) {
		f, err := strconv.ParseFloat(string(value), 64)
		dst, finite := jsonline.AppendFloat64(dst, f)
		return dst, err == nil && finite && !bytes.ContainsAny(value, "_xX")
	}),
	"bool": orNull(func(dst, value []byte) ([]byte, bool) {
		text := strings.ToLower(string(value))
		return append(dst, text...), text == "true" || text == "false"
	}),
	"json": orNull(func(dst, value []byte) ([]byte, bool) {
		at := len(dst)
		dst = jsonline.AppendOnLine(dst, value)
		return dst, jsonline.Valid(dst[at:])
	}),
}

// optionalText is the type of values that the output reads from text: dates, decimals.
const optionalText = "string or null"

func orNull(write writer) writer {
	return func(dst, value []byte) ([]byte, bool) {
		if len(value) == 0 {
			return append(dst, "null"...), true
		}
		return write(dst, value)
	}
}

// choose returns the columns to read.
func choose(names []string, o format.Options) (chosen []column, err error) {
	wanted := o.Columns
	if len(wanted) == 0 {
		wanted = typed(names, o.Types)
	}
	for _, text := range wanted {
		c, err := parseColumn(text, names)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(chosen, func(other column) bool { return other.index == c.index }) {
			return nil, fmt.Errorf("column %q is asked for twice", c.name)
		}
		chosen = append(chosen, c)
	}
	if o.Members != nil {
		chosen = slices.DeleteFunc(chosen, func(c column) bool { return !slices.Contains(o.Members, c.name) })
	}
	for i := range chosen {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		chosen[i].prefix = append(jsonline.AppendString([]byte{separator}, chosen[i].name), ':')
	}
	return chosen, nil
}

// typed adds types to the names of columns.
func typed(names, types []string) []string {
	names = slices.Clone(names)
	for _, text := range types {
		at := strings.LastIndexByte(text, ':')
		if at < 0 {
			continue
		}
		kind := readAs(text[at+1:])
		if i := slices.Index(names, text[:at]); i >= 0 && writers[kind] != nil {
			names[i] += ":" + kind
		}
	}
	return names
}

// readAs returns the type with which values are read that have another type in the results.
func readAs(kind string) string {
	plain, _, _ := strings.Cut(kind, "(")
	switch plain {
	case "float32":
		return "float64"
	case "int8", "int16", "int32":
		return "int64"
	case "uint8", "uint16", "uint32":
		return "uint64"
	case "decimal", "date", "time", "timetz", "timestamp", "timestamptz", "bytes", "binary", "uuid":
		if !strings.HasSuffix(kind, "]") {
			return optionalText
		}
	}
	return kind
}

// parseColumn finds the column that a name, or a name with a type, means.
func parseColumn(text string, names []string) (column, error) {
	name, kind := text, "string"
	if at := strings.LastIndexByte(text, ':'); at >= 0 && !slices.Contains(names, text) {
		name, kind = text[:at], text[at+1:]
	}
	index := slices.Index(names, name)
	if index < 0 {
		return column{}, format.NoColumn(name, names)
	}
	write := writers[kind]
	if write == nil {
		return column{}, fmt.Errorf("column %q: unknown type %q; the types are bool, float64, int64, uint64, json and string", name, kind)
	}
	return column{name: name, index: index, kind: kind, write: write}, nil
}
