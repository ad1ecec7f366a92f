package commit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
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

// arrayPath is the temporary name of an array.
func (o Options) arrayPath(i int) string {
	return filepath.Join(o.WorkDir, fmt.Sprintf("array-%d.partial", i))
}

// openArrays opens the files of the arrays. Their headers are written at the end, when the
// number of rows is known.
func (o *Output) openArrays(state State) error {
	for i, a := range o.options.Arrays {
		size := int64(0)
		if i < len(state.Durable.Sides) {
			size = state.Durable.Sides[i]
		}
		t, err := openTarget(a.Path, o.options.arrayPath(i), o.options, size, files.PublicMode)
		if err != nil {
			return err
		}
		o.arrays = append(o.arrays, t)
		if size == 0 {
			if _, err := o.arrays[i].Write(make([]byte, npy.HeaderBytes)); err != nil {
				return fault.New(fault.Storage, "write %s: %w", a.Path, err)
			}
		}
		o.arraySums = append(o.arraySums, state.sideSum(i))
	}
	return nil
}

// arraySizes returns the sizes of the arrays.
func (o *Output) arraySizes() (sizes []int64) {
	for i := range o.arrays {
		sizes = append(sizes, o.arrays[i].size)
	}
	return sizes
}

// endArrays completes the headers.
func (o *Output) endArrays() error {
	for i, a := range o.options.Arrays {
		t := &o.arrays[i]
		header := a.Header(o.options.Layout.Get(), t.size)
		if _, err := t.file.WriteAt(header, 0); err != nil {
			return fault.New(fault.Storage, "write output %s: %w", t.path, err)
		}
	}
	return nil
}

// Header returns the header of an array in a file of this size.
func (a Array) Header(l *columns.Layout, size int64) []byte {
	kind := a.Kind(l)
	return kind.Header((size - npy.HeaderBytes) / int64(kind.RowBytes()))
}

// ArraySums returns the checksums of the finished arrays.
func (o *Output) ArraySums() []chunk.FileSum { return o.options.finishedSums(o.arraySums) }

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
func (s State) sideSum(i int) (sum chunk.FileSum) {
	for _, e := range s.Encoded {
		for _, u := range e.Units {
			if i < len(u.Sides) {
				sum = sum.Join(u.Sides[i])
			}
		}
	}
	return sum
}

// sidesOf returns the sizes of n arrays that hold the units of these entries.
func sidesOf(n int, entries []Encoded) []int64 {
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = npy.HeaderBytes
	}
	for _, e := range entries {
		for _, u := range e.Units {
			for i, side := range u.Sides {
				if i < n {
					sizes[i] += side.Bytes
				}
			}
		}
	}
	return sizes
}

// arrayFiles returns the files that hold the durable arrays; a path is empty if the file
// already has its final name.
func (s State) arrayFiles(options Options) (all []sizedFile) {
	for i := range options.Arrays {
		if i >= len(s.Durable.Sides) && !s.Complete {
			break
		}
		path := options.arrayPath(i)
		if _, err := os.Lstat(path); s.Complete && os.IsNotExist(err) {
			path = ""
		}
		all = append(all, sizedFile{path, s.arrayBytes(i)})
	}
	return all
}

// arrayBytes returns the size of a durable array. One without rows is a header.
func (s State) arrayBytes(i int) int64 { return cmp.Or(valueAt(s.Durable.Sides, i), npy.HeaderBytes) }

// checkArraySizes finds how much of the output the arrays are long enough for.
func (s State) checkArraySizes(options Options, to *extent) error {
	for i, file := range s.arrayFiles(options) {
		if file.path == "" {
			continue
		}
		have, err := sizeOf(file.path)
		if err != nil {
			return fault.New(fault.Storage, "check output: %w", err)
		}
		end := int64(npy.HeaderBytes)
		for _, e := range s.Encoded {
			for _, u := range e.Units {
				end += u.side(i).Bytes
			}
			if end > have {
				to.end(s.segmentsBefore(e.First))
				break
			}
		}
		if have < npy.HeaderBytes {
			to.end(0)
		}
	}
	return nil
}

// checkArrays reads the arrays back and finds how much of the output they are intact for.
func (s State) checkArrays(ctx context.Context, options Options, to *extent) error {
	for i, file := range s.arrayFiles(options) {
		if file.path == "" {
			continue
		}
		in := &filesReader{files: []sizedFile{file}}
		err := s.checkArray(ctx, in, options, i, to)
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s State) checkArray(ctx context.Context, in io.Reader, options Options, i int, to *extent) error {
	buffered := bufio.NewReaderSize(&interruptible{ctx, in}, checkBuffer)
	header := make([]byte, npy.HeaderBytes)
	_, err := io.ReadFull(buffered, header)
	// The header is written at the end, again if the output is not whole.
	if l := options.Layout.Get(); s.Complete && l != nil && !bytes.Equal(header, options.Arrays[i].Header(l, s.arrayBytes(i))) {
		to.end(len(s.Output))
	}
	for _, e := range s.Encoded {
		for _, u := range e.Units {
			var sum chunk.FileSum
			if err == nil {
				_, err = io.CopyN(&sum, buffered, u.side(i).Bytes)
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case isReadFault(err):
				return err
			case err != nil || sum != u.side(i):
				to.end(s.segmentsBefore(e.First))
				return nil
			}
		}
	}
	return nil
}

// side returns the checksum of the unit's rows in an array.
func (u Unit) side(i int) (sum chunk.FileSum) {
	if i < len(u.Sides) {
		sum = u.Sides[i]
	}
	return sum
}

// finishArrays gives the arrays their final names.
func (o *Output) finishArrays() error {
	for i := range o.arrays {
		if err := o.arrays[i].finish(o.options.Replace); err != nil {
			return err
		}
		crash.Point("array-renamed")
	}
	return nil
}

// closeArrays closes their files.
func (o *Output) closeArrays() {
	for i := range o.arrays {
		o.arrays[i].close()
	}
}

// completeArrays gives the arrays of a complete output their final names.
func completeArrays(options Options, state State) error {
	for i, a := range options.Arrays {
		if err := completeFile(a.Path, options.arrayPath(i), state.arrayBytes(i), options.Replace); err != nil {
			return err
		}
	}
	return nil
}

func valueAt(list []int64, i int) int64 {
	if i < len(list) {
		return list[i]
	}
	return 0
}
