package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/encode/table"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// container is how files of one format become one file: a head, their bodies one after another, and a
// tail. The bodies are copied as they are.
type container interface {
	// body returns where the body of the next file begins and ends. A file that does not have the
	// layout of the run is errLayout, unless it is empty.
	body(file io.ReaderAt, size int64) (from, to int64, err error)
	// ends returns the head and the tail of the file in which the bodies have this size together.
	ends(size int64) (head, tail []byte, err error)
}

// errLayout means that a file does not have the layout of the run.
var errLayout = errors.New("its columns are not those of the run")

// newContainer returns the container of a format.
func newContainer(f encode.Format, layout *columns.Layout) container {
	if f.Table {
		return &groups{format: table.Of(f.Name), schema: *layout.Table}
	}
	return lines{f}
}

// lines are files of lines, in frames or plain.
type lines struct{ format encode.Format }

func (lines) body(_ io.ReaderAt, size int64) (from, to int64, err error) { return 0, size, nil }

func (l lines) ends(size int64) (head, tail []byte, err error) {
	var nothing bytes.Buffer
	if size == 0 {
		err = l.format.EncodeNothing(&nothing)
	}
	return nothing.Bytes(), nil, err
}

// groups are files of a table. Their bodies are groups of rows; the tail says where all of them are.
type groups struct {
	format table.Format
	schema parquet.Schema
	placed []parquet.Placed
	size   int64 // of the bodies so far
}

func (g *groups) body(file io.ReaderAt, size int64) (from, to int64, err error) {
	from = int64(len(g.format.Head(g.schema)))
	list, err := g.format.Groups(file, size)
	if err != nil || len(list) == 0 {
		return from, from, err
	}
	if fits, err := g.format.Fits(file, size, g.schema); err != nil || !fits {
		return from, from, cmp.Or(err, errLayout)
	}
	to = from
	for i, p := range list {
		_, length, err := g.format.Size(p)
		if err != nil || p.Offset != to || length <= 0 || length > size-to {
			return from, from, fmt.Errorf("group %d of rows is not where it should be: %w", i, err)
		}
		to += length
		g.placed = append(g.placed, parquet.Placed{Offset: p.Offset + g.size, Meta: p.Meta})
	}
	g.size += to - from
	return from, to, nil
}

func (g *groups) ends(int64) (head, tail []byte, err error) {
	tail, err = g.format.Tail(g.schema, g.placed, false)
	return g.format.Head(g.schema), tail, err
}

// array is NumPy arrays with one column. Their bodies are its rows.
type array struct {
	commit.Array
	layout *columns.Layout
}

func (a array) body(file io.ReaderAt, size int64) (from, to int64, err error) {
	header := make([]byte, npy.HeaderBytes)
	if _, err := file.ReadAt(header, 0); err != nil {
		return 0, 0, err
	}
	if size > npy.HeaderBytes && !bytes.Equal(header, a.Header(a.layout, size)) {
		return 0, 0, errLayout
	}
	return npy.HeaderBytes, size, nil
}

func (a array) ends(size int64) (head, tail []byte, err error) {
	return a.Header(a.layout, npy.HeaderBytes+size), nil, nil
}
