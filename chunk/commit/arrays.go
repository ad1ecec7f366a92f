package commit

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/npy"
)

// Array is a file beside the output with a column of its rows, as a NumPy array.
type Array struct {
	Path string
	// Column is its number in the layout.
	Column int
	// Mask: the file has a 1 for each row without values instead of a column.
	Mask bool
}

// Kind returns the kind of array that a layout makes of it.
func (a Array) Kind(l *columns.Layout) npy.Array {
	if a.Mask {
		return columns.MaskArray
	}
	return l.Columns[a.Column].Array()
}

// TemporaryArray is the temporary name of an array.
func TemporaryArray(i int) string { return fmt.Sprintf("array-%d.partial", i) }

func (o Options) arrayPath(i int) string { return filepath.Join(o.WorkDir, TemporaryArray(i)) }

// Header returns the header of an array in a file of this size.
func (a Array) Header(l *columns.Layout, size int64) []byte {
	kind := a.Kind(l)
	return kind.Header((size - npy.HeaderBytes) / int64(kind.RowBytes()))
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

// arrayFiles returns the files that hold the durable arrays; a path is empty if the file
// already has its final name.
func (s State) arrayFiles(options Options) (all []piece) {
	for i := range options.Arrays {
		if len(s.Encoded) == 0 && !s.Complete {
			break
		}
		path := options.arrayPath(i)
		if _, err := os.Lstat(path); s.Complete && os.IsNotExist(err) {
			path = ""
		}
		all = append(all, piece{path, 0, s.sideBytes(i)})
	}
	return all
}

// sideBytes returns the size of a durable array. One without rows is a header.
func (s State) sideBytes(i int) int64 { return npy.HeaderBytes + s.sideSum(i).Bytes }

// side returns the checksum of the unit's rows in an array.
func (u Unit) side(i int) (sum chunk.FileSum) {
	if i < len(u.Sides) {
		sum = u.Sides[i]
	}
	return sum
}
