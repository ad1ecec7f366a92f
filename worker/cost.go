package worker

import (
	"math"
	"strconv"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// maxCost is the highest cost of a record, so that sums and products do not overflow.
const maxCost = math.MaxInt32

// costOf returns the size by which a record is grouped, from the JSON of the member that
// --group-by names: the bytes of a text, the value of a number, the bytes of an array or
// object as written. The value is empty if the record has no such member.
//
// Bytes of UTF-8 are closer to what texts cost than characters are: a tokenizer makes
// about one token of four letters, but also of one ideograph.
func costOf(value []byte) int {
	if len(value) == 0 {
		return 0
	}
	switch value[0] {
	case '"':
		return min(jsonline.TextLen(value), maxCost)
	case '[', '{':
		return min(len(value), maxCost)
	case 'n', 't', 'f':
		return 0
	}
	return costOfNumber(value)
}

func costOfNumber(value []byte) int {
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' { // negative, or not an integer
			number, _ := strconv.ParseFloat(string(value), 64) // ±Inf if out of range
			return int(max(0, min(number, maxCost)))
		}
		n = min(10*n+int(c-'0'), maxCost)
	}
	return n
}
