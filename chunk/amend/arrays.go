package amend

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// NextArray is the name of a new array until it replaces the old one.
func NextArray(i int) string { return fmt.Sprintf("array-%d.next", i) }

// arrayRewriter copies the rows of arrays in order while some of them are replaced.
type arrayRewriter struct {
	layout *columns.Layout
	files  []*arrayFile
	row    int64 // of the old arrays, up to which all is done
	// empty: no row of the old arrays has values, and they have another layout.
	empty bool
}

// arrayFile is an array, and what replaces it.
type arrayFile struct {
	commit.Array
	from     *os.File
	old      io.Reader
	read     chunk.FileSum
	want     chunk.FileSum // of the old file
	rowBytes int64
	to       *os.File
	out      *bufio.Writer
	written  chunk.FileSum // rows
}

func openArrays(r Retried) (*arrayRewriter, error) {
	a := &arrayRewriter{layout: r.Layout, empty: r.NoValues}
	for i, array := range r.Arrays {
		f := &arrayFile{Array: array, want: r.ArraySums[i], rowBytes: int64(array.Kind(r.Layout).RowBytes())}
		a.files = append(a.files, f)
		var err error
		if f.from, err = os.Open(array.Path); err != nil {
			return a, fault.New(fault.Usage, "open array: %w", err)
		}
		f.old = bufio.NewReaderSize(io.TeeReader(f.from, &f.read), 1<<20)
		if _, err := io.CopyN(io.Discard, f.old, npy.HeaderBytes); err != nil {
			return a, f.changed(err)
		}
		path := filepath.Join(r.Dir, NextArray(i))
		_ = os.Remove(path) // left by a killed attempt
		if f.to, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, files.PublicMode); err != nil {
			return a, fault.New(fault.Storage, "create array: %w", err)
		}
		f.out = bufio.NewWriterSize(f.to, 1<<20)
		if _, err := f.out.Write(make([]byte, npy.HeaderBytes)); err != nil {
			return a, storage(err)
		}
	}
	return a, nil
}

func (f *arrayFile) changed(err error) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", f.Path, err)
}

// Write appends rows.
func (f *arrayFile) Write(p []byte) (int, error) {
	_, _ = f.written.Write(p)
	return f.out.Write(p)
}

// keepTo takes over the old rows up to a number.
func (a *arrayRewriter) keepTo(row int64) error {
	n := row - a.row
	a.row = row
	if a.empty {
		for range n {
			if err := a.add(columns.Rows{Present: []bool{false}}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range a.files {
		if _, err := io.CopyN(f, f.old, n*f.rowBytes); err != nil {
			return f.changed(err)
		}
	}
	return nil
}

// skip leaves out the next old row.
func (a *arrayRewriter) skip() error {
	a.row++
	if a.empty {
		return nil
	}
	for _, f := range a.files {
		if _, err := io.CopyN(io.Discard, f.old, f.rowBytes); err != nil {
			return f.changed(err)
		}
	}
	return nil
}

// add appends new rows.
func (a *arrayRewriter) add(rows columns.Rows) error {
	if err := rows.Check(a.layout); err != nil {
		return fault.New(fault.Unknown, "bug: results of the retry: %w", err)
	}
	for _, f := range a.files {
		data := rows.Mask
		if !f.Mask {
			data = func() []byte { return rows.Column(a.layout, f.Column) }
		}
		if _, err := f.Write(data()); err != nil {
			return storage(err)
		}
	}
	return nil
}

// finish completes the new arrays, after the old rows up to a number, which must be all.
func (a *arrayRewriter) finish(rows int64) (sums []chunk.FileSum, err error) {
	if err := a.keepTo(rows); err != nil {
		return nil, err
	}
	for _, f := range a.files {
		if _, err := io.Copy(io.Discard, f.old); err != nil {
			return nil, f.changed(err)
		}
		if f.read != f.want {
			return nil, f.changed(fmt.Errorf("it has %d bytes and checksum %08x instead of %d and %08x", f.read.Bytes, f.read.CRC, f.want.Bytes, f.want.CRC))
		}
		var sum chunk.FileSum
		header := f.Header(a.layout, npy.HeaderBytes+f.written.Bytes)
		_, _ = sum.Write(header)
		err := f.out.Flush()
		if err == nil {
			_, err = f.to.WriteAt(header, 0)
		}
		if err = cmp.Or(err, f.to.Sync()); err != nil {
			return nil, storage(err)
		}
		sums = append(sums, sum.Join(f.written))
	}
	return sums, nil
}

func (a *arrayRewriter) close() {
	if a == nil {
		return
	}
	for _, f := range a.files {
		for _, file := range []*os.File{f.from, f.to} {
			if file != nil {
				file.Close()
			}
		}
	}
}
