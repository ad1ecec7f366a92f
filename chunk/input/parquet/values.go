package parquet

import (
	"encoding/binary"
	"fmt"

	"github.com/gpurun/gpurun/chunk/parquet/spec"
)

// values are decoded values, without nulls. A value is bytes: text, or a number as in the
// file, little-endian. A boolean is one byte.
type values struct {
	count   int
	size    int      // bytes of each value in fixed; 0: texts
	fixed   []byte   // values of a fixed size, one after another
	texts   [][]byte // others
	indexes []uint32 // in the dictionary, if there is one
	table   *values  // the dictionary
}

// at returns a value. It is valid until the next page is decoded.
func (v *values) at(i int) []byte {
	if v.table != nil {
		return v.table.at(int(v.indexes[i]))
	}
	if v.size == 0 {
		return v.texts[i]
	}
	return v.fixed[i*v.size : (i+1)*v.size]
}

// leaf is a column as far as its decoding is concerned.
type leaf struct {
	physical int64
	length   int64 // of a fixed-length value
	maxDef   int
	maxRep   int
}

// size returns the size of a value, 0 if it is not fixed.
func (l *leaf) size() int { return spec.Size(l.physical, int(l.length)) }

// decode decodes n values.
func (l *leaf) decode(encoding int64, n int, data []byte, dictionary *values) (*values, error) {
	v := &values{count: n, size: l.size()}
	var err error
	switch {
	case n == 0:
	case encoding == spec.EncodingPlain:
		err = l.decodePlain(v, data)
	case encoding == spec.EncodingPlainDictionary || encoding == spec.EncodingRLEDictionary:
		err = decodeIndexes(v, data, dictionary)
	case encoding == spec.EncodingRLE && l.physical == spec.PhysicalBool:
		err = decodeBooleans(v, data)
	case encoding == spec.EncodingDelta && (l.physical == spec.PhysicalInt32 || l.physical == spec.PhysicalInt64):
		err = decodeIntegers(v, data)
	case encoding == spec.EncodingDeltaLength && l.physical == spec.PhysicalBytes:
		v.texts, _, err = decodeDeltaLengths(n, data)
	case encoding == spec.EncodingDeltaText && (l.physical == spec.PhysicalBytes || l.physical == spec.PhysicalFixed):
		err = decodeTexts(v, data)
	case encoding == spec.EncodingSplit && v.size > 1:
		err = decodeSplit(v, data)
	default:
		err = fmt.Errorf("encoding %d is not supported for this type", encoding)
	}
	return v, err
}

func (l *leaf) decodePlain(v *values, data []byte) error {
	if l.physical == spec.PhysicalBool {
		if len(data) < (v.count+7)/8 {
			return errRuns
		}
		v.fixed = make([]byte, v.count)
		unpack(v.fixed, data, 1)
		return nil
	}
	if v.size > 0 {
		if len(data)/v.size < v.count {
			return errRuns
		}
		v.fixed = data[:v.count*v.size]
		return nil
	}
	if len(data)/4 < v.count {
		return errRuns
	}
	v.texts = make([][]byte, v.count)
	for i := range v.texts {
		if len(data) < 4 {
			return errRuns
		}
		length := binary.LittleEndian.Uint32(data)
		data = data[4:]
		if uint64(length) > uint64(len(data)) {
			return errRuns
		}
		v.texts[i], data = data[:length:length], data[length:]
	}
	return nil
}

func decodeIndexes(v *values, data []byte, dictionary *values) error {
	if dictionary == nil || len(data) == 0 || data[0] > 32 {
		return errRuns
	}
	v.table, v.indexes = dictionary, make([]uint32, v.count)
	if _, err := decodeRuns(v.indexes, data[1:], uint(data[0])); err != nil {
		return err
	}
	for _, index := range v.indexes {
		if uint64(index) >= uint64(dictionary.count) {
			return fmt.Errorf("value %d of a dictionary of %d", index, dictionary.count)
		}
	}
	return nil
}

func decodeBooleans(v *values, data []byte) error {
	if len(data) < 4 {
		return errRuns
	}
	v.fixed = make([]byte, v.count)
	_, err := decodeRuns(v.fixed, data[4:], 1)
	return err
}

func decodeIntegers(v *values, data []byte) error {
	numbers, _, err := decodeDeltas(v.count, data)
	if err != nil {
		return err
	}
	v.fixed = make([]byte, 0, v.count*v.size)
	for _, n := range numbers {
		if v.size == 4 {
			v.fixed = binary.LittleEndian.AppendUint32(v.fixed, uint32(n))
		} else {
			v.fixed = binary.LittleEndian.AppendUint64(v.fixed, uint64(n))
		}
	}
	return nil
}

func decodeTexts(v *values, data []byte) (err error) {
	v.texts, err = decodeDeltaTexts(v.count, data)
	for _, text := range v.texts {
		if v.size > 0 && len(text) != v.size {
			return errRuns
		}
	}
	v.size = 0
	return err
}

// decodeSplit decodes values of which first all first bytes were written, then all second
// bytes, and so on.
func decodeSplit(v *values, data []byte) error {
	if len(data)/v.size < v.count {
		return errRuns
	}
	v.fixed = make([]byte, v.count*v.size)
	for k := range v.size {
		stream := data[k*v.count : (k+1)*v.count]
		for i, b := range stream {
			v.fixed[i*v.size+k] = b
		}
	}
	return nil
}
