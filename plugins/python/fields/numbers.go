package fields

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
)

// numbers parses JSON numbers, and arrays of them, into bytes that Python and numpy
// use directly. A column has one kind: integers if all values are, so that 1 does not
// come out as 1.0. A column of plain values that mixes integers and fractions is
// rejected, and Python parses its values one by one (array_of_numbers).
type numbers struct {
	buffer []byte
}

func (n *numbers) reset() { n.buffer = n.buffer[:0] }

// read returns the kind, width and values of a column; kind is "" if it is not a
// column of numbers. It is one of plain values, or of arrays of equal length, of which one
// fraction makes all of them fractions: vectors often contain 0 for 0.0.
func (n *numbers) read(values [][]byte) (kind string, width int, data []byte) {
	isArray := values[0][0] == '['
	fractions, width := 0, 0
	for i, value := range values {
		if isArray {
			value = bytes.TrimSpace(value[1 : len(value)-1])
		}
		count := bytes.Count(value, comma) + 1
		if len(value) == 0 || i > 0 && count != width || !isNumeric(value) {
			return "", 0, nil
		}
		width = count
		if bytes.ContainsAny(value, ".eE") {
			fractions++
		}
	}
	whole := fractions == 0
	if !isArray && !whole && fractions < len(values) {
		return "", 0, nil
	}
	start := len(n.buffer)
	for _, value := range values {
		for element := range bytes.SplitSeq(bytes.Trim(value, "[]"), comma) {
			if !n.append(bytes.TrimSpace(element), whole) {
				return "", 0, nil
			}
		}
	}
	kind = "float"
	if whole {
		kind = "int"
	}
	if !isArray {
		width = 0
	}
	return kind, width, n.buffer[start:]
}

var comma = []byte(",")

// isNumeric reports whether there are only numbers and what separates them.
func isNumeric(value []byte) bool {
	for _, c := range value {
		if c > '9' && c != 'e' && c != 'E' || c > ' ' && c < '+' || c == '/' {
			return false
		}
	}
	return true
}

func (n *numbers) append(value []byte, whole bool) bool {
	if whole {
		i, err := strconv.ParseInt(string(value), 10, 64)
		n.buffer = binary.LittleEndian.AppendUint64(n.buffer, uint64(i))
		return err == nil
	}
	f, err := strconv.ParseFloat(string(value), 64)
	n.buffer = binary.LittleEndian.AppendUint64(n.buffer, math.Float64bits(f))
	return err == nil
}
