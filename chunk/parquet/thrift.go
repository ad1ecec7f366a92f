package parquet

import (
	"encoding/binary"
	"errors"
	"reflect"
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
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
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

// thriftKind returns the type of a value. That of a boolean depends on it.
func thriftKind(v reflect.Value) byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return thriftTrue
		}
		return thriftFalse
	case reflect.Int8:
		return thriftI8
	case reflect.Int16:
		return thriftI16
	case reflect.Int32:
		return thriftI32
	case reflect.Int64:
		return thriftI64
	case reflect.Struct:
		return thriftStruct
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return thriftList
		}
	}
	return thriftBinary
}

func appendThrift(dst []byte, v reflect.Value) []byte {
	switch thriftKind(v) {
	case thriftTrue, thriftFalse, thriftI8:
		if v.Kind() == reflect.Int8 {
			return append(dst, byte(v.Int()))
		}
		return append(dst, thriftKind(v))
	case thriftStruct:
		return appendStruct(dst, v)
	case thriftBinary:
		text := v.String
		if v.Kind() == reflect.Slice {
			text = func() string { return string(v.Bytes()) }
		}
		dst = binary.AppendUvarint(dst, uint64(v.Len()))
		return append(dst, text()...)
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
	r := &thriftReader{data: data}
	r.fields(reflect.ValueOf(v).Elem())
	return r.at, r.err
}

type thriftReader struct {
	data  []byte
	at    int
	depth int
	err   error
}

func (r *thriftReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.at = len(r.data)
}

// nested calls read one level deeper.
func (r *thriftReader) nested(read func()) {
	if r.depth++; r.depth > maxThriftDepth {
		r.fail(errThrift)
	}
	read()
	r.depth--
}

// fields reads a struct; an invalid value skips it.
func (r *thriftReader) fields(v reflect.Value) {
	var known []thriftField
	if v.IsValid() {
		known = fieldsOf(v.Type())
	}
	r.nested(func() {
		id := int64(0)
		for r.err == nil {
			header := r.next()
			if header == 0 || r.err != nil {
				break
			}
			id += int64(header >> 4)
			if header>>4 == 0 {
				id = r.varint()
			}
			r.field(header&0xf, known, id, v)
		}
	})
}

// field reads a field if it is known.
func (r *thriftReader) field(kind byte, known []thriftField, id int64, v reflect.Value) {
	var target reflect.Value
	for i, f := range known {
		if f.id == id {
			target = v.Field(i)
			break
		}
	}
	if target.IsValid() && target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
		target = target.Elem()
	}
	if kind != thriftTrue && kind != thriftFalse {
		r.value(kind, target)
	} else if target.IsValid() { // the value of a boolean is its type
		if target.Kind() != reflect.Bool {
			r.fail(errThrift)
			return
		}
		target.SetBool(kind == thriftTrue)
	}
}

// value reads a value; an invalid target skips it. A value of another type is damage.
func (r *thriftReader) value(kind byte, v reflect.Value) {
	switch {
	case v.IsValid() && thriftKind(v) != kind && !(isInteger(kind) && v.CanInt()) && !(v.Kind() == reflect.Bool && kind <= thriftFalse):
		r.fail(errThrift)
	case kind == thriftTrue || kind == thriftFalse: // as an element
		if b := r.next(); v.IsValid() {
			v.SetBool(b == thriftTrue)
		}
	case isInteger(kind):
		r.integer(kind, v)
	case kind == thriftDouble:
		r.skip(8)
	case kind == thriftUUID:
		r.skip(16)
	case kind == thriftBinary:
		r.bytes(v)
	case kind == thriftStruct:
		r.fields(v)
	case kind == thriftList || kind == thriftSet:
		r.list(v)
	case kind == thriftMap:
		if n := r.uvarint(); n > 0 {
			kinds := r.next()
			r.elements(n, func() { r.value(kinds>>4, reflect.Value{}); r.value(kinds&0xf, reflect.Value{}) })
		}
	default:
		r.fail(errThrift)
	}
}

func isInteger(kind byte) bool { return kind >= thriftI8 && kind <= thriftI64 }

func (r *thriftReader) integer(kind byte, v reflect.Value) {
	n := int64(0)
	if kind == thriftI8 {
		n = int64(int8(r.next()))
	} else {
		n = r.varint()
	}
	if !v.IsValid() {
		return
	}
	if v.OverflowInt(n) {
		r.fail(errThrift)
		return
	}
	v.SetInt(n)
}

func (r *thriftReader) bytes(v reflect.Value) {
	length := r.uvarint()
	start := r.at
	r.skip(length)
	switch {
	case r.err != nil || !v.IsValid():
	case v.Kind() == reflect.String:
		v.SetString(string(r.data[start:r.at]))
	default:
		v.SetBytes(r.data[start:r.at:r.at])
	}
}

func (r *thriftReader) list(v reflect.Value) {
	header := r.next()
	n := uint64(header >> 4)
	if n == 15 {
		n = r.uvarint()
	}
	r.elements(n, func() {
		var element reflect.Value
		if v.IsValid() {
			v.Grow(1)
			v.SetLen(v.Len() + 1)
			element = v.Index(v.Len() - 1)
		}
		r.value(header&0xf, element)
	})
}

// elements calls read n times. Each element takes at least one byte.
func (r *thriftReader) elements(n uint64, read func()) {
	if n > uint64(len(r.data)-r.at) {
		r.fail(ErrShort)
	}
	r.nested(func() {
		for i := uint64(0); i < n && r.err == nil; i++ {
			read()
		}
	})
}

func (r *thriftReader) next() byte {
	if r.at >= len(r.data) {
		r.fail(ErrShort)
		return 0
	}
	r.at++
	return r.data[r.at-1]
}

func (r *thriftReader) skip(n uint64) {
	if n > uint64(len(r.data)-r.at) {
		r.fail(ErrShort)
		return
	}
	r.at += int(n)
}

func (r *thriftReader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data[r.at:])
	switch {
	case n < 0:
		r.fail(errThrift)
	case n == 0:
		r.fail(ErrShort)
	default:
		r.at += n
	}
	return v
}
