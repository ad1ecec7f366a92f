// Package table has the formats of outputs with typed columns. Their files consist of a head, groups of
// rows, and a tail that says where the groups are.
package table

import (
	"io"

	"github.com/gpurun/gpurun/chunk/encode/arrow"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	rows "github.com/gpurun/gpurun/chunk/parquet"
)

// Format is a format of typed columns. The bytes of its groups depend on their rows and the schema alone.
type Format struct {
	// Head returns the first bytes of a file.
	Head func(rows.Schema) []byte
	// Begin begins a group of rows.
	Begin func(rows.Schema) Group
	// Tail returns the end of a file with these groups. isPart: it is one of several files, which
	// have the same types, whatever each contains.
	Tail func(s rows.Schema, groups []rows.Placed, isPart bool) ([]byte, error)
	// Groups returns the groups of a file, and Size the rows and bytes of one.
	Groups func(r io.ReaderAt, size int64) ([]rows.Placed, error)
	Size   func(rows.Placed) (count, size int64, err error)
	// Fits reports whether a file has the columns of a schema.
	Fits func(r io.ReaderAt, size int64, s rows.Schema) (bool, error)
}

// Group encodes a group of rows.
type Group interface {
	// Add adds rows, one after another.
	Add(rows []byte) error
	// Finish returns the group, in pieces, and its description, for Tail.
	Finish() (data [][]byte, meta []byte)
}

// Rows returns how many rows a file has.
func (f Format) Rows(r io.ReaderAt, size int64) (total int64, err error) {
	groups, err := f.Groups(r, size)
	for _, g := range groups {
		count, _, bad := f.Size(g)
		if bad != nil {
			return 0, bad
		}
		total += count
	}
	return total, err
}

// Of returns the format with the given name.
func Of(name string) Format {
	if name == "arrow" {
		return Format{
			Head: arrow.Head, Begin: func(s rows.Schema) Group { return arrow.NewGroup(s) },
			Tail: arrow.Tail, Groups: arrow.ReadGroups, Size: arrow.Size, Fits: arrow.Fits,
		}
	}
	return Format{
		Head: func(rows.Schema) []byte { return []byte(parquet.Head) }, Begin: func(s rows.Schema) Group { return parquet.NewGroup(s) },
		Tail: parquet.Tail, Groups: parquet.ReadGroups, Size: parquet.Size, Fits: parquet.Fits,
	}
}
