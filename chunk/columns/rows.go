package columns

import (
	"fmt"

	"github.com/gpurun/gpurun/chunk/encode/npy"
)

// Rows are consecutive rows.
type Rows struct {
	// Present has an element for each row: whether it has values.
	Present []bool
	// Values are those of the rows that have some.
	Values []byte
}

// Column returns the values of one column, in the order of the rows; zeros for rows without
// values.
func (r Rows) Column(l *Layout, number int) []byte {
	at, size := l.Place(number)
	row := l.RowBytes()
	if size == row && len(r.Values) == row*len(r.Present) {
		return r.Values // every row has values, and nothing else
	}
	values := make([]byte, size*len(r.Present))
	from := r.Values
	for i, present := range r.Present {
		if present {
			copy(values[i*size:], from[at:at+size])
			from = from[row:]
		}
	}
	return values
}

// Valid reports for each row whether it has a column.
func (r Rows) Valid(l *Layout, number int) []bool {
	if !l.Nulls {
		return r.Present
	}
	valid, row, from := make([]bool, len(r.Present)), l.RowBytes(), r.Values
	for i, present := range r.Present {
		if present {
			valid[i] = from[number/8]&(1<<(number%8)) != 0
			from = from[row:]
		}
	}
	return valid
}

// Mask returns a byte for each row: 1 if it has no values.
func (r Rows) Mask() []byte {
	mask := make([]byte, len(r.Present))
	for i, present := range r.Present {
		if !present {
			mask[i] = 1
		}
	}
	return mask
}

// Check returns an error if there are not as many values as rows that have some.
func (r Rows) Check(l *Layout) error {
	n := 0
	for _, present := range r.Present {
		if present {
			n++
		}
	}
	if len(r.Values) != n*l.RowBytes() {
		return fmt.Errorf("%w: %d rows with values, but %d bytes", ErrIndex, n, len(r.Values))
	}
	return nil
}

// Array returns the array that holds a column.
func (c Column) Array() npy.Array {
	names := map[Kind]string{Float16: "<f2", Float32: "<f4", Float64: "<f8", Int64: "<i8", Bool: "|b1"}
	return npy.Array{DType: names[c.Kind], Width: c.Width, Shape: c.Dimensions}
}

// MaskArray is the array of a mask.
var MaskArray = npy.Array{DType: "|u1"}
