package parquet

import (
	"strings"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// A struct has the bytes of a file and its path, as data sets of the Hugging Face Hub have for images and
// sounds. In a line, it is an object with the bytes in base64, or these alone.

// The members of a struct.
const (
	BytesMember = "bytes"
	PathMember  = "path"
)

// StructOf returns the type of structs with these members, in this order.
func StructOf(members ...string) Type {
	return structure + Type("("+strings.Join(members, ",")+")")
}

// JoinBytes returns the type of a column that has values of both types, which are of bytes or structs of them.
func JoinBytes(a, b Type) Type {
	switch {
	case a == b || a.Members() != nil:
		return a
	case b.Members() != nil:
		return b
	}
	return Bytes
}

// The byte before a value in a row: how much of it exists. It is 0 for a null.
const (
	exists       byte = 1 // of a struct: its member is null
	memberExists byte = 2
)

// addStruct appends a struct that a line has.
func (c *rowColumn) addStruct(dst, value []byte) ([]byte, error) {
	found, fits := make(map[string][]byte), true
	switch value[0] {
	case '"':
		found[BytesMember] = value
	case '{':
		jsonline.Members(value, func(_ []byte, name string, v []byte) bool {
			fits = fits && (name == BytesMember || name == PathMember)
			found[name] = v
			return true
		})
	default:
		fits = false
	}
	if !fits {
		return dst, misfit(value, c.Type)
	}
	for _, m := range c.members {
		v := found[m.Name]
		if v == nil || string(v) == "null" {
			dst = append(dst, exists)
			continue
		}
		var err error
		if dst, err = newValueParser(m.Type).add(append(dst, memberExists), v); err != nil {
			return dst, err
		}
	}
	return dst, nil
}
