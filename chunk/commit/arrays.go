package commit

import (
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/npy"
)

// Array is a file beside the output with a column of its rows, as a NumPy array.
type Array struct {
	Path string `json:"path"`
	// Column is its number in the layout.
	Column int `json:"column"`
	// Mask: the file has a 1 for each row without values instead of a column.
	Mask bool `json:"mask,omitempty"`
}

// TemporaryArray is the temporary name of an array.
func TemporaryArray(i int) string { return fmt.Sprintf("array-%d.partial", i) }

// Header returns the header of an array in a file of this size.
func (a Array) Header(l *columns.Layout, size int64) []byte {
	rows := size - npy.HeaderBytes
	if a.Mask {
		return npy.Header("|u1", rows, nil)
	}
	c := l.Columns[a.Column]
	return c.Header(rows / int64(c.Bytes()))
}

// ArraySums returns the checksums of the arrays of a complete output.
func (s State) ArraySums(options Options) []chunk.FileSum {
	var sums []chunk.FileSum
	for i := range options.Arrays {
		sums = append(sums, s.sideSum(i))
	}
	return options.finishedSums(sums)
}

// finishedSums adds the headers to the checksums of arrays.
func (o Options) finishedSums(sums []chunk.FileSum) []chunk.FileSum {
	var finished []chunk.FileSum
	for i, sum := range sums {
		var whole chunk.FileSum
		if l := o.Layout.Get(); l != nil {
			_, _ = whole.Write(o.Arrays[i].Header(l, npy.HeaderBytes+sum.Bytes))
		}
		finished = append(finished, whole.Join(sum))
	}
	return finished
}

// sideSum returns the checksum of the durable rows of an array.
func (s State) sideSum(i int) chunk.FileSum {
	return s.sum(func(u Unit) chunk.FileSum { return u.side(i) })
}

// side returns the checksum of the unit's rows in an array.
func (u Unit) side(i int) (sum chunk.FileSum) {
	if i < len(u.Sides) {
		sum = u.Sides[i]
	}
	return sum
}
