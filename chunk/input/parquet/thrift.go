package parquet

import (
	"encoding/binary"
	"errors"
)

// The metadata of a Parquet file is in Thrift's compact protocol. parquet-go allocates a
// list before it reads its elements, so a damaged length would exhaust memory. thriftReader
// checks every length against the bytes that are left, and reads the few fields that the
// other checks need.

var (
	// errShort means that the bytes end within the struct.
	errShort = errors.New("the metadata is truncated")
	// errThrift means that the bytes are not a struct.
	errThrift = errors.New("the metadata is damaged")
)

// The types of the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
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

// maxThriftDepth limits nesting. Parquet's own structs need fewer than ten levels.
const maxThriftDepth = 32

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

// fields reads a struct. For each field it calls read, which reads the value and returns
// true, or returns false to have it skipped.
func (r *thriftReader) fields(read func(id int64, kind byte) bool) {
	if r.depth++; r.depth > maxThriftDepth {
		r.fail(errThrift)
	}
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
		kind := header & 0xf
		if read != nil && read(id, kind) || kind == thriftTrue || kind == thriftFalse {
			continue // a boolean's value is its type
		}
		r.skipValue(kind)
	}
	r.depth--
}

// integer reads a number. Another type is damage.
func (r *thriftReader) integer(kind byte) int64 {
	switch kind {
	case thriftByte:
		return int64(int8(r.next()))
	case thriftI16, thriftI32, thriftI64:
		return r.varint()
	}
	r.fail(errThrift)
	return 0
}

// bytes reads a string. The result is part of the data.
func (r *thriftReader) bytes(kind byte) []byte {
	if kind != thriftBinary {
		r.fail(errThrift)
		return nil
	}
	length := r.uvarint()
	start := r.at
	r.skip(length)
	if r.err != nil {
		return nil
	}
	return r.data[start:r.at]
}

// list reads a list or a set, calling read for each element.
func (r *thriftReader) list(kind byte, read func(kind byte)) {
	if kind != thriftList && kind != thriftSet {
		r.fail(errThrift)
		return
	}
	header := r.next()
	n := uint64(header >> 4)
	if n == 15 {
		n = r.uvarint()
	}
	r.elements(n, func() { read(header & 0xf) })
}

// elements calls read n times. Each element takes at least one byte.
func (r *thriftReader) elements(n uint64, read func()) {
	if n > uint64(len(r.data)-r.at) {
		r.fail(errShort)
	}
	if r.depth++; r.depth > maxThriftDepth {
		r.fail(errThrift)
	}
	for i := uint64(0); i < n && r.err == nil; i++ {
		read()
	}
	r.depth--
}

func (r *thriftReader) skipValue(kind byte) {
	switch kind {
	case thriftTrue, thriftFalse, thriftByte: // as an element, a boolean takes a byte
		r.skip(1)
	case thriftI16, thriftI32, thriftI64:
		r.varint()
	case thriftDouble:
		r.skip(8)
	case thriftBinary:
		r.bytes(kind)
	case thriftUUID:
		r.skip(16)
	case thriftStruct:
		r.fields(nil)
	case thriftList, thriftSet:
		r.list(kind, r.skipValue)
	case thriftMap:
		if n := r.uvarint(); n > 0 {
			kinds := r.next()
			r.elements(n, func() { r.skipValue(kinds >> 4); r.skipValue(kinds & 0xf) })
		}
	default:
		r.fail(errThrift)
	}
}

func (r *thriftReader) next() byte {
	if r.at >= len(r.data) {
		r.fail(errShort)
		return 0
	}
	r.at++
	return r.data[r.at-1]
}

func (r *thriftReader) skip(n uint64) {
	if n > uint64(len(r.data)-r.at) {
		r.fail(errShort)
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
		r.fail(errShort)
	default:
		r.at += n
	}
	return v
}
