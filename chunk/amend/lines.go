package amend

import (
	"bufio"
	"io"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// resultFiles is an old output that is copied to a new one, in order, while some results are
// replaced.
type resultFiles interface {
	// reach takes over everything before a failed record.
	reach(f record.Failure) error
	// keep takes over the failed record. line is what the file of failed records has of it.
	keep(f record.Failure, line []byte) error
	// skip leaves it out, if it is the one that the job wrote. data is the record as it was in
	// the input.
	skip(f record.Failure, data []byte) error
	// add appends the new result: size bytes of lines, then their values.
	add(from io.Reader, size, values int64) error
	// addFailed appends a record that failed again.
	addFailed(f record.Failure, data []byte) error
	// at returns the position at which the new output ends.
	at() int64
	// finish takes over everything that remains and makes the new files durable.
	finish() error
	parts() []commit.ManifestPart
	arraySums() []chunk.FileSum
	close()
}

// lineFiles are the results as lines, with their arrays.
type lineFiles struct {
	*rewriter
	batch  bool
	arrays *arrayRewriter // nil without any
	sums   []chunk.FileSum
}

func openLines(r Retried, to string) (resultFiles, error) {
	l := &lineFiles{batch: r.Batch}
	var err error
	if len(r.Arrays) > 0 {
		if l.arrays, err = openArrays(r); err != nil {
			l.arrays.close()
			return nil, err
		}
	}
	l.rewriter, err = openRewriter(r, to)
	return l, err
}

func (l *lineFiles) reach(f record.Failure) error {
	if err := l.rewriter.reach(f); err != nil || l.arrays == nil {
		return err
	}
	return l.arrays.keepTo(l.oldLines())
}

func (l *lineFiles) keep(f record.Failure, _ []byte) error { return l.rewriter.keep(f.At + f.Size) }

func (l *lineFiles) skip(f record.Failure, data []byte) error {
	if f.Size == 0 {
		return nil
	}
	err := l.rewriter.skip(f.Size, func(old io.Reader) error {
		same := &comparer{with: bufio.NewReader(old)}
		if err := l.writeFailed(same, f, data); err != nil || same.size != f.Size {
			return fault.New(fault.Conflict, "%s was changed since the job wrote it: byte %d is not the start of the failed record of line %d",
				l.path(l.from), f.At, f.Line)
		}
		return nil
	})
	if err != nil || l.arrays == nil {
		return err
	}
	return l.arrays.skip()
}

func (l *lineFiles) add(from io.Reader, size, values int64) error {
	if _, err := io.CopyN(l.rewriter, from, size); err != nil {
		return storage(err)
	}
	if l.arrays == nil {
		return nil
	}
	rows, err := readRows(from, values, l.arrays.layout)
	if err != nil {
		return err
	}
	return l.arrays.add(rows)
}

// readRows reads the values of a record's lines.
func readRows(from io.Reader, values int64, layout *columns.Layout) (rows columns.Rows, err error) {
	rows.Values = make([]byte, values)
	if _, err := io.ReadFull(from, rows.Values); err != nil {
		return rows, fault.New(fault.Storage, "read results: %w", err)
	}
	if size := layout.RowBytes(); size > 0 {
		for range values / int64(size) {
			rows.Present = append(rows.Present, true)
		}
	}
	return rows, nil
}

// writeFailed writes the line of a failed record.
func (l *lineFiles) writeFailed(w io.Writer, f record.Failure, data []byte) error {
	if l.batch {
		return record.WriteBatchError(w, f.Record, data, f.Mark())
	}
	return record.WriteMarked(w, data, f.Mark())
}

func (l *lineFiles) addFailed(f record.Failure, data []byte) error {
	if err := l.writeFailed(l.rewriter, f, data); err != nil {
		return storage(err)
	}
	if l.arrays == nil {
		return nil
	}
	return l.arrays.add(columns.Rows{Present: []bool{false}})
}

func (l *lineFiles) finish() error {
	err := l.rewriter.finish()
	if err == nil && l.arrays != nil {
		l.sums, err = l.arrays.finish(l.oldLines())
	}
	return err
}

func (l *lineFiles) parts() []commit.ManifestPart { return l.written }

func (l *lineFiles) arraySums() []chunk.FileSum { return l.sums }

func (l *lineFiles) close() {
	if l.rewriter != nil {
		l.rewriter.close()
	}
	l.arrays.close()
}
