package parquet

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/input/parallel"
	"github.com/gpurun/gpurun/chunk/input/tree"
	"github.com/gpurun/gpurun/chunk/parquet"
)

// pages take the memory of a row group.
const pages = "the pages of the row group"

// File is an open Parquet file. Its methods may be called concurrently.
type File struct {
	reader   io.ReaderAt
	metadata *parquet.FileMetaData
	leaves   []leaf
	said     parquet.Metadata
	members  []*node // those that are read
	blobs    int     // values beside each line
	threads  int
	memory   int64       // that decoding may take
	spare    []sync.Pool // of *buffers, by column
}

// OpenFile reads and checks the footer of a file. As many row groups as there may be
// threads are decoded at the same time.
func OpenFile(r io.ReaderAt, size int64, o format.Options) (_ *File, err error) {
	defer tree.Recovered(&err)
	m, err := parquet.ReadFooter(r, size)
	if err != nil {
		return nil, err
	}
	f := &File{reader: r, metadata: m, threads: max(o.Threads, 1), memory: parallel.Limit(size), blobs: o.Bytes.Values()}
	for _, kv := range m.KeyValues {
		f.said.Read(kv.Key, kv.Value)
	}
	all, leaves := nodes(m.Schema, f.said)
	if err := checkFooter(m, len(leaves), size); err != nil {
		return nil, err
	}
	f.leaves = leaves
	f.spare = make([]sync.Pool, len(f.leaves))
	if f.members, err = tree.Choose(all, o); err != nil {
		return nil, err
	}
	return f, f.checkCodecs()
}

// checkCodecs checks that the columns that are read can be decompressed.
func (f *File) checkCodecs() error {
	for i, group := range f.metadata.Groups {
		for _, n := range f.members {
			for _, chunk := range group.Columns[n.from:n.to] {
				if err := checkCodec(chunk.Meta.Codec); err != nil {
					return fmt.Errorf("row group %d: column %q: %w", i, n.Name, err)
				}
			}
		}
	}
	return nil
}

// Count returns the number of rows.
func (f *File) Count() int64 { return f.metadata.Rows }

// Groups returns the number of row groups.
func (f *File) Groups() int { return len(f.metadata.Groups) }

// firstRow returns the number of rows before a row group.
func (f *File) firstRow(group int) (row int64) {
	for _, g := range f.metadata.Groups[:group] {
		row += g.Rows
	}
	return row
}

// groupOf returns the row group that a row is in, counted from 0, and the number of rows
// before that group. A row behind the end is in a group behind the last one.
func (f *File) groupOf(row int64) (group int, before int64) {
	for _, g := range f.metadata.Groups {
		if row < before+g.Rows {
			break
		}
		before += g.Rows
		group++
	}
	return group, before
}

// Rows decodes a row group of a file that gpurun has written. It calls each for every row, which is
// valid until each returns, as a row of a table.
func (f *File) Rows(ctx context.Context, group int, each func(row []byte) error) error {
	memory := parallel.NewMemory(ctx, pages, f.memory).Join()
	defer memory.Leave()
	return f.eachRow(ctx, group, memory, func(w *rowWriter) error {
		w.dst = w.dst[:0]
		if err := w.each(func(_ int, n *node) { w.raw(n) }); err != nil {
			return err
		}
		return each(w.dst)
	})
}

// eachRow calls write for every row of a row group.
func (f *File) eachRow(ctx context.Context, group int, memory *parallel.Share, write func(*rowWriter) error) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("row group %d: %w", group, err)
		}
	}()
	defer tree.Recovered(&err)
	g := &f.metadata.Groups[group]
	w := &rowWriter{members: f.members, blobs: f.blobs, cursors: make([]*cursor, len(f.leaves)), row: f.firstRow(group)}
	for _, n := range f.members {
		for i := n.from; i < n.to && g.Rows > 0; i++ {
			b, _ := f.spare[i].Get().(*buffers)
			w.cursors[i] = newCursor(f.reader, f.leaves[i], &g.Columns[i].Meta, memory, b)
		}
	}
	for range g.Rows {
		if err := write(w); err != nil {
			return err
		}
	}
	f.keep(w.cursors)
	return nil
}

// keep keeps the buffers of a row group for the next one, unless they take a quarter of the memory that
// decoding may take: the next one may need it for other columns.
func (f *File) keep(cursors []*cursor) {
	taken := int64(0)
	for _, c := range cursors {
		if c != nil {
			taken += c.reserved
		}
	}
	for i, c := range cursors {
		if c != nil && taken < f.memory/4 {
			f.spare[i].Put(c.buffers)
		}
	}
}
