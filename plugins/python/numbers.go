package python

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
// column of numbers.
func (n *numbers) read(values [][]byte) (kind string, width int, data []byte) {
	if values[0][0] != '[' {
		return n.plain(values)
	}
	return n.arrays(values)
}

func (n *numbers) plain(values [][]byte) (string, int, []byte) {
	whole := 0
	for _, value := range values {
		if isWhole(value) {
			whole++
		}
	}
	start := len(n.buffer)
	ok := whole == 0 || whole == len(values)
	for i := 0; ok && i < len(values); i++ {
		ok = n.append(values[i], whole > 0)
	}
	if !ok {
		return "", 0, nil
	}
	return kindName(whole > 0), 0, n.buffer[start:]
}

// arrays parses arrays of equal length. One fraction makes all of them fractions:
// vectors often contain 0 for 0.0.
func (n *numbers) arrays(values [][]byte) (string, int, []byte) {
	whole, width := true, -1
	for _, value := range values {
		count, allWhole, ok := inspect(value)
		if !ok || count == 0 || width >= 0 && count != width {
			return "", 0, nil
		}
		width, whole = count, whole && allWhole
	}
	start := len(n.buffer)
	for _, value := range values {
		for element := range bytes.SplitSeq(value[1:len(value)-1], comma) {
			if !n.append(bytes.TrimSpace(element), whole) {
				return "", 0, nil
			}
		}
	}
	return kindName(whole), width, n.buffer[start:]
}

var comma = []byte(",")

// inspect counts the elements of a valid array; ok is false if they are not all numbers.
func inspect(value []byte) (count int, whole, ok bool) {
	whole, count = true, 1
	for _, c := range value[1 : len(value)-1] {
		switch {
		case c == ',':
			count++
		case '0' <= c && c <= '9' || c == '-' || c == '+' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '.' || c == 'e' || c == 'E':
			whole = false
		default:
			return 0, false, false
		}
	}
	if len(bytes.TrimSpace(value[1:len(value)-1])) == 0 {
		return 0, false, true
	}
	return count, whole, true
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

func isWhole(value []byte) bool { return !bytes.ContainsAny(value, ".eE") }

func kindName(whole bool) string {
	if whole {
		return "int"
	}
	return "float"
}
