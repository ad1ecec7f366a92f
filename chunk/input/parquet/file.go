package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/parquet-go/parquet-go"
)

// File is an open Parquet file. Its methods may be called concurrently.
type File struct {
	reader   io.ReaderAt
	metadata *metadata
	members  []*node // those that are read
	columns  []bool  // which columns are read
	file     *parquet.File
	threads  int
}

// OpenFile reads and checks the footer of a file. Members are the columns to read, all if
// there are none; threads is how many row groups may be decoded at the same time.
func OpenFile(r io.ReaderAt, size int64, members []string, threads int) (_ *File, err error) {
	defer recovered(&err)
	m, err := readMetadata(r, size)
	if err != nil {
		return nil, err
	}
	if err := m.check(size); err != nil {
		return nil, err
	}
	f := &File{reader: r, metadata: m, threads: max(threads, 1)}
	all, err := m.nodes()
	if err != nil {
		return nil, err
	}
	if f.members, err = choose(all, members); err != nil {
		return nil, err
	}
	f.file, err = parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
	if err != nil {
		return nil, err
	}
	return f, f.checkColumns()
}

// checkColumns checks the columns that are read, and notes which they are.
func (f *File) checkColumns() error {
	f.columns = make([]bool, len(f.file.Schema().Columns()))
	for _, n := range f.members {
		for i := n.from; i < n.to; i++ {
			f.columns[i] = true
		}
	}
	for i, group := range f.metadata.groups {
		chunks := f.file.RowGroups()[i].ColumnChunks()
		for _, n := range f.members {
			for leaf := n.from; leaf < n.to; leaf++ {
				if err := checkCodec(group.columns[leaf].codec); err != nil {
					return fmt.Errorf("row group %d: column %q: %w", i, n.name, err)
				}
				if e := f.element(leaf); i == 0 && e.logical.kind != logicalNull && int64(chunks[leaf].Type().Kind()) != e.physical {
					return fmt.Errorf("column %q is annotated with a type that it cannot have", n.name)
				}
			}
		}
	}
	return nil
}

// element returns the element of a leaf.
func (f *File) element(leaf int) (e element) {
	for _, e = range f.metadata.schema {
		if e.children > 0 {
			continue
		}
		if leaf == 0 {
			break
		}
		leaf--
	}
	return e
}

// Rows returns the number of rows.
func (f *File) Rows() int64 { return f.metadata.rows }

// Groups returns the number of row groups.
func (f *File) Groups() int { return len(f.metadata.groups) }

// firstRow returns the number of rows before a row group.
func (f *File) firstRow(group int) (row int64) {
	for _, g := range f.metadata.groups[:group] {
		row += g.rows
	}
	return row
}

// blockBytes is the size of the blocks of lines that are passed on, unless one line is
// larger.
const blockBytes = 256 << 10

// decode decodes a row group. It passes the lines to emit in blocks and continues with the
// empty buffer that emit returns.
func (f *File) decode(ctx context.Context, group int, emit func(lines []byte) ([]byte, error)) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("row group %d: %w", group, err)
		}
	}()
	defer recovered(&err)
	// parquet-go decodes in assembly. A read outside of memory that it may miss in a
	// damaged page is a panic then, and not the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	g := &f.metadata.groups[group]
	w := &rowWriter{members: f.members, cursors: make([]*cursor, len(f.columns)), row: f.firstRow(group)}
	defer func() {
		for _, c := range w.cursors {
			if c != nil {
				c.close()
			}
		}
	}()
	chunks := f.file.RowGroups()[group].ColumnChunks()
	for _, n := range f.members {
		for i := n.from; i < n.to && g.rows > 0; i++ {
			if err := checkPages(f.reader, &g.columns[i]); err != nil {
				return fmt.Errorf("column %q: %w", n.name, err)
			}
			w.cursors[i] = newCursor(chunks[i])
		}
	}
	for range g.rows {
		if err := w.write(); err != nil {
			return err
		}
		if len(w.dst) < blockBytes {
			continue
		}
		if w.dst, err = emit(w.dst); err != nil {
			return err
		}
	}
	if len(w.dst) > 0 {
		_, err = emit(w.dst)
	}
	return err
}

// recovered turns a panic into an error. parquet-go panics on some damaged files.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("the file is damaged: %w", r)
	default:
		*err = errors.New(fmt.Sprint("the file is damaged: ", r))
	}
}
