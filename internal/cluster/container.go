package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	encoded "github.com/gpurun/gpurun/chunk/encode/parquet"
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

// mergeable lists the formats of outputs that can be merged.
func mergeable() (names []string) {
	for _, name := range encode.Names() {
		if f, err := encode.ByName(name); err == nil && newContainer(f, new(columns.Layout)) != nil {
			names = append(names, name)
		}
	}
	return names
}

// newContainer returns the container of a format, nil if its files cannot be joined.
func newContainer(f encode.Format, layout *columns.Layout) container {
	switch {
	case !f.Table:
		return lines{f}
	case f.Name == "parquet":
		return &table{schema: layout.Table}
	}
	return nil
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

// table is Parquet files. Their bodies are row groups; the tail describes all of them.
type table struct {
	schema *parquet.Schema
	groups []encoded.Placed
	size   int64 // of the bodies so far
}

func (t *table) body(file io.ReaderAt, size int64) (from, to int64, err error) {
	from = int64(len(encoded.Head))
	to = from
	footer, err := parquet.ReadFooter(file, size)
	if err != nil {
		return from, to, err
	}
	groups, err := encoded.ReadGroups(file, size)
	if err != nil {
		return from, to, err
	}
	if len(groups) > 0 && !bytes.Equal(elements(footer.Schema), elements(t.schema.Elements())) {
		return from, to, errLayout
	}
	for i, g := range groups {
		_, length, err := g.Size()
		if err != nil || g.Offset != to || length <= 0 || length > size-to {
			return from, to, fmt.Errorf("row group %d is not where it should be: %w", i, err)
		}
		to += length
		t.groups = append(t.groups, encoded.Placed{Offset: g.Offset + t.size, Meta: g.Meta})
	}
	t.size += to - from
	return from, to, nil
}

// elements returns the bytes that describe columns in a footer.
func elements(list []parquet.SchemaElement) []byte {
	return parquet.Marshal(parquet.FileMetaData{Schema: list})
}

func (t *table) ends(int64) (head, tail []byte, err error) {
	tail, err = encoded.Tail(*t.schema, t.groups, false)
	return []byte(encoded.Head), tail, err
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
