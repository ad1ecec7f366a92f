package parquet

import (
	"encoding/binary"
	"errors"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
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
		if read != nil && read(id, kind) || kind == spec.ThriftTrue || kind == spec.ThriftFalse {
			continue // a boolean's value is its type
		}
		r.skipValue(kind)
	}
	r.depth--
}

// integer reads a number. Another type is damage.
func (r *thriftReader) integer(kind byte) int64 {
	switch kind {
	case spec.ThriftI8:
		return int64(int8(r.next()))
	case spec.ThriftI16, spec.ThriftI32, spec.ThriftI64:
		return r.varint()
	}
	r.fail(errThrift)
	return 0
}

// bytes reads a string. The result is part of the data.
func (r *thriftReader) bytes(kind byte) []byte {
	if kind != spec.ThriftBinary {
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
	if kind != spec.ThriftList && kind != spec.ThriftSet {
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
	case spec.ThriftTrue, spec.ThriftFalse, spec.ThriftI8: // as an element, a boolean takes a byte
		r.skip(1)
	case spec.ThriftI16, spec.ThriftI32, spec.ThriftI64:
		r.varint()
	case spec.ThriftDouble:
		r.skip(8)
	case spec.ThriftBinary:
		r.bytes(kind)
	case spec.ThriftUUID:
		r.skip(16)
	case spec.ThriftStruct:
		r.fields(nil)
	case spec.ThriftList, spec.ThriftSet:
		r.list(kind, r.skipValue)
	case spec.ThriftMap:
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
