package parquet

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The metadata of a file is in Thrift's compact protocol. Marshal and Unmarshal translate between
// it and the structs of this package.

var (
	// ErrShort means that the bytes end within the struct.
	ErrShort = errors.New("the metadata is truncated")
	// errThrift means that the bytes are not a struct.
	errThrift = errors.New("the metadata is damaged")
)

// Types of values.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

// maxThriftDepth limits nesting. The structs of Parquet need fewer than ten levels.
const maxThriftDepth = 32

// thriftField is a field of a struct.
type thriftField struct {
	id       int64
	optional bool
}

var thriftFields sync.Map // the fields of each type of struct: []thriftField

func fieldsOf(t reflect.Type) []thriftField {
	if known, ok := thriftFields.Load(t); ok {
		return known.([]thriftField)
	}
	list := make([]thriftField, t.NumField())
	for i := range list {
		tag, optional := strings.CutSuffix(t.Field(i).Tag.Get("id"), "?")
		id, err := strconv.ParseInt(tag, 10, 16)
		if err != nil {
			panic(err) // the tags are constant
		}
		list[i] = thriftField{id, optional || t.Field(i).Type.Kind() == reflect.Pointer}
	}
	thriftFields.Store(t, list)
	return list
}

// Marshal encodes a struct.
func Marshal(v any) []byte { return appendStruct(nil, reflect.ValueOf(v)) }

func appendStruct(dst []byte, v reflect.Value) []byte {
	last := int64(0)
	for i, f := range fieldsOf(v.Type()) {
		value := v.Field(i)
		if f.optional && value.IsZero() {
			continue
		}
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		kind := thriftKind(value)
		if delta := f.id - last; delta <= 15 {
			dst = append(dst, byte(delta)<<4|kind)
		} else {
			dst = binary.AppendVarint(append(dst, kind), f.id)
		}
		last = f.id
		if value.Kind() != reflect.Bool { // whose value is its type
			dst = appendThrift(dst, value)
		}
	}
	return append(dst, 0)
}

// thriftKinds are the types of values, except that a list of bytes is binary.
var thriftKinds = map[reflect.Kind]byte{
	reflect.Bool: thriftFalse, reflect.Int8: thriftI8, reflect.Int16: thriftI16, reflect.Int32: thriftI32, reflect.Int64: thriftI64,
	reflect.String: thriftBinary, reflect.Slice: thriftList, reflect.Struct: thriftStruct,
}

// thriftKind returns the type of a value. That of a boolean depends on it.
func thriftKind(v reflect.Value) byte {
	switch {
	case v.Kind() == reflect.Bool && v.Bool():
		return thriftTrue
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return thriftBinary
	}
	return thriftKinds[v.Kind()]
}

func appendThrift(dst []byte, v reflect.Value) []byte {
	switch kind := thriftKind(v); kind {
	case thriftTrue, thriftFalse:
		return append(dst, kind)
	case thriftI8:
		return append(dst, byte(v.Int()))
	case thriftStruct:
		return appendStruct(dst, v)
	case thriftBinary:
		dst = binary.AppendUvarint(dst, uint64(v.Len()))
		if v.Kind() == reflect.String {
			return append(dst, v.String()...)
		}
		return append(dst, v.Bytes()...)
	case thriftList:
		kind := thriftKind(reflect.Zero(v.Type().Elem()))
		if n := v.Len(); n < 15 {
			dst = append(dst, byte(n)<<4|kind)
		} else {
			dst = binary.AppendUvarint(append(dst, 0xf0|kind), uint64(n))
		}
		for i := range v.Len() {
			dst = appendThrift(dst, v.Index(i))
		}
		return dst
	}
	return binary.AppendVarint(dst, v.Int())
}

// Unmarshal decodes the struct at the beginning of data and returns its length. Data may be
// damaged: every length is checked against the bytes that are left before memory is allocated.
// Slices of bytes are parts of data.
func Unmarshal(data []byte, v any) (int, error) {
	r := &thriftReader{Numbers: Numbers{Data: data}}
	r.fields(reflect.ValueOf(v).Elem())
	return len(data) - len(r.Data), r.Err
}

type thriftReader struct {
	Numbers
	depth int
}

// fields reads a struct; an invalid value skips it.
func (r *thriftReader) fields(v reflect.Value) {
	for id := int64(0); r.Err == nil; {
		header := r.next()
		if header == 0 {
			return
		}
		id += int64(header >> 4)
		if header>>4 == 0 {
			id = r.Varint()
		}
		var field reflect.Value
		if v.IsValid() {
			if at := slices.IndexFunc(fieldsOf(v.Type()), func(f thriftField) bool { return f.id == id }); at >= 0 {
				field = v.Field(at)
			}
		}
		if field.IsValid() && field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		r.value(header&0xf, field, true)
	}
}

// value reads a field or the element of a list; an invalid target skips it. A value of another type
// is damage.
func (r *thriftReader) value(kind byte, v reflect.Value, isField bool) {
	isInteger := kind >= thriftI8 && kind <= thriftI64
	fits := !v.IsValid() || thriftKind(v) == kind || isInteger && v.CanInt() || v.Kind() == reflect.Bool && kind == thriftTrue
	if r.depth++; r.depth > maxThriftDepth || !fits {
		r.fail(errThrift)
	}
	defer func() { r.depth-- }()
	switch {
	case r.Err != nil:
	case kind == thriftTrue || kind == thriftFalse:
		if !isField { // the value of a field is its type
			kind = r.next()
		}
		if v.IsValid() {
			v.SetBool(kind == thriftTrue)
		}
	case isInteger:
		r.integer(kind, v)
	case kind == thriftDouble:
		r.Take(8)
	case kind == thriftBinary:
		switch data := r.Take(r.Uvarint()); {
		case !v.IsValid():
		case v.Kind() == reflect.String:
			v.SetString(string(data))
		default:
			v.SetBytes(data)
		}
	case kind == thriftStruct:
		r.fields(v)
	case kind == thriftList || kind == thriftSet:
		r.list(v)
	default:
		r.fail(errThrift)
	}
}

func (r *thriftReader) integer(kind byte, v reflect.Value) {
	var n int64
	if kind == thriftI8 {
		n = int64(int8(r.next()))
	} else {
		n = r.Varint()
	}
	switch {
	case !v.IsValid():
	case v.OverflowInt(n):
		r.fail(errThrift)
	default:
		v.SetInt(n)
	}
}

// list reads a list. Each element takes at least one byte.
func (r *thriftReader) list(v reflect.Value) {
	header := r.next()
	n := uint64(header >> 4)
	if n == 15 {
		n = r.Uvarint()
	}
	if n > uint64(len(r.Data)) {
		r.fail(ErrShort)
	}
	for ; n > 0 && r.Err == nil; n-- {
		var element reflect.Value
		if v.IsValid() {
			v.Grow(1)
			v.SetLen(v.Len() + 1)
			element = v.Index(v.Len() - 1)
		}
		r.value(header&0xf, element, false)
	}
}

// Numbers reads encoded numbers, until the first error.
type Numbers struct {
	Data []byte // that is left
	Err  error
}

func (b *Numbers) fail(err error) {
	if b.Err == nil {
		b.Err = err
	}
	b.Data = nil
}

// Take returns the next n bytes.
func (b *Numbers) Take(n uint64) []byte {
	if n > uint64(len(b.Data)) {
		b.fail(ErrShort)
		return nil
	}
	taken := b.Data[:n:n]
	b.Data = b.Data[n:]
	return taken
}

func (b *Numbers) next() byte {
	if taken := b.Take(1); len(taken) == 1 {
		return taken[0]
	}
	return 0
}

// Varint reads a number that may be negative.
func (b *Numbers) Varint() int64 {
	v := b.Uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// Uvarint reads a number.
func (b *Numbers) Uvarint() uint64 {
	v, n := binary.Uvarint(b.Data)
	switch {
	case n < 0:
		b.fail(errThrift)
	case n == 0:
		b.fail(ErrShort)
	default:
		b.Data = b.Data[n:]
	}
	return v
}
