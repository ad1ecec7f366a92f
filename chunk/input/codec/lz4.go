package codec

import "encoding/binary"

// HadoopLZ4 decodes what Hadoop and Spark write: blocks, each after its size and its
// compressed size. Early versions of Arrow wrote one block without them, under the same number.
func HadoopLZ4(dst, packed []byte) ([]byte, error) {
	filled := 0
	for rest := packed; len(rest) > 0; {
		if len(rest) < 8 {
			return LZ4(dst, packed)
		}
		size, length := uint64(binary.BigEndian.Uint32(rest)), uint64(binary.BigEndian.Uint32(rest[4:]))
		rest = rest[8:]
		if size > uint64(len(dst)-filled) || length > uint64(len(rest)) {
			return LZ4(dst, packed)
		}
		block, err := LZ4(dst[filled:filled+int(size)], rest[:length])
		if err != nil || len(block) != int(size) {
			return LZ4(dst, packed)
		}
		filled, rest = filled+len(block), rest[length:]
	}
	return dst[:filled], nil
}

// lz4MinMatch is the length of a match whose token has the length 0.
const lz4MinMatch = 4

// LZ4 decodes one block and returns the part of dst that it fills. A block is a series of
// tokens, each with literals and then a match, which repeats what is in dst already; the last has
// literals only. The usual library decodes it in assembler, which crashes if dst is empty.
func LZ4(dst, packed []byte) ([]byte, error) { return lz4Block(dst, 0, packed) }

// lz4Block decodes a block behind the first bytes of dst, to which it may refer.
func lz4Block(dst []byte, at int, packed []byte) ([]byte, error) {
	for len(packed) > 0 {
		token := packed[0]
		literals, rest, ok := lz4Length(packed[1:], int(token>>4))
		if !ok || literals > len(rest) || literals > len(dst)-at {
			return nil, ErrSize
		}
		at += copy(dst[at:], rest[:literals])
		if packed = rest[literals:]; len(packed) == 0 {
			return dst[:at], nil
		}
		if len(packed) < 2 {
			return nil, ErrSize
		}
		distance := int(binary.LittleEndian.Uint16(packed))
		match, rest, ok := lz4Length(packed[2:], int(token&15))
		match += lz4MinMatch
		if !ok || distance == 0 || distance > at || match > len(dst)-at {
			return nil, ErrSize
		}
		for match > 0 { // a match may repeat itself: what is there doubles with each copy
			n := copy(dst[at:at+match], dst[at-distance:at])
			at, match, distance = at+n, match-n, distance+n
		}
		packed = rest
	}
	return nil, ErrSize // a block ends with literals
}

// lz4Length reads the bytes that extend a length of 15: each adds its value, and the last is not 255.
func lz4Length(packed []byte, length int) (int, []byte, bool) {
	if length < 15 {
		return length, packed, true
	}
	for i, more := range packed {
		length += int(more)
		if more != 255 {
			return length, packed[i+1:], true
		}
	}
	return 0, nil, false
}

// LZ4Frame decodes a frame: a header, blocks after their sizes, and an end. A block may refer to
// the ones before it. Checksums are not compared.
func LZ4Frame(dst, packed []byte) ([]byte, error) {
	const (
		magic                           = 0x184d2204
		hasDictionary, hasSize, hasSums = 1, 8, 16
		plain                           = 1 << 31
	)
	if len(packed) < 7 || binary.LittleEndian.Uint32(packed) != magic || packed[4]>>6 != 1 || packed[4]&hasDictionary != 0 {
		return nil, ErrSize
	}
	flags := packed[4]
	head, sums := 7, 0 // with a checksum of itself
	if flags&hasSize != 0 {
		head += 8
	}
	if flags&hasSums != 0 {
		sums = 4
	}
	if len(packed) < head {
		return nil, ErrSize
	}
	at := 0
	for packed = packed[head:]; len(packed) >= 4; {
		size := binary.LittleEndian.Uint32(packed)
		packed = packed[4:]
		length := int(size &^ plain)
		switch {
		case size == 0:
			return dst[:at], nil
		case length > len(packed)-sums:
			return nil, ErrSize
		case size&plain == 0:
			block, err := lz4Block(dst, at, packed[:length])
			if err != nil {
				return nil, err
			}
			at = len(block)
		case length > len(dst)-at:
			return nil, ErrSize
		default:
			at += copy(dst[at:], packed[:length])
		}
		packed = packed[length+sums:]
	}
	return nil, ErrSize
}
