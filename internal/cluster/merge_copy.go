package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// mergeParallel is how many shards are copied or verified at a time: network file systems
// are faster with several streams.
const mergeParallel = 4

// piece is a shard's file that goes into the output.
type piece struct {
	shard   int
	commit  string // the file that commits it
	path    string
	sum     chunk.FileSum
	records int64
	// from and to are where its body begins and ends, body is the checksum of that once it is copied.
	from, to int64
	body     chunk.FileSum
}

// damaged is the fault of a committed file that has changed.
func (p *piece) damaged(format string, args ...any) error {
	return fault.BadShard.New("the output of shard %d is damaged: %s: %w", p.shard, p.path, fmt.Errorf(format, args...)).
		Set(p.commit)
}

// exists reports whether there is a file: an errors file without records may not exist.
func (p *piece) exists() bool { return p.sum != chunk.FileSum{} }

// read calls do with the file of the piece, if there is one.
func (p *piece) read(do func(*os.File) error) error {
	if !p.exists() {
		return nil
	}
	in, err := os.Open(p.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return p.damaged("it does not exist")
	case err != nil:
		return storage("read shard", err)
	}
	defer in.Close()
	return do(in)
}

// locate finds the body of the piece.
func (p *piece) locate(c container) error {
	return p.read(func(in *os.File) (err error) {
		if p.from, p.to, err = c.body(in, p.sum.Bytes); err != nil {
			err = p.damaged("%w", err)
		}
		return err
	})
}

// join writes the bodies of pieces to a file, in order, between one head and one tail. It verifies
// the checksums of the pieces on the way, and makes the file durable.
func (m *merge) join(ctx context.Context, path string, c container, pieces []*piece) (sum chunk.FileSum, err error) {
	var size int64
	for _, p := range pieces {
		if err := p.locate(c); err != nil {
			return sum, err
		}
		size += p.to - p.from
	}
	head, tail, err := c.ends(size)
	if err != nil {
		return sum, storage("write the merged output", err)
	}
	resumed := m.resume(path)
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return sum, storage("create the merged output", err)
	}
	defer out.Close()
	begin := int64(len(head))
	if err := m.copyPieces(ctx, out, begin, pieces, resumed); err != nil {
		return sum, err
	}
	_, _ = sum.Write(head)
	for _, p := range pieces {
		sum = sum.Join(p.body)
	}
	_, _ = sum.Write(tail)
	_, err = out.WriteAt(head, 0)
	if err == nil {
		_, err = out.WriteAt(tail, begin+size)
	}
	if err == nil {
		err = out.Truncate(sum.Bytes)
	}
	return sum, storage("write the merged output", cmp.Or(err, out.Sync(), out.Close()))
}

// copyPieces copies the bodies of pieces, several at a time, to where they belong.
func (m *merge) copyPieces(ctx context.Context, out *os.File, at int64, pieces []*piece, resumed bool) error {
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mergeParallel)
	for _, p := range pieces {
		begin := at
		at += p.to - p.from
		group.Go(func() error {
			if resumed && p.isAt(ctx, out, begin) {
				atomic.AddInt64(&m.merged.Resumed, p.records)
			} else if err := p.copyTo(ctx, io.NewOffsetWriter(out, begin)); err != nil {
				return err
			}
			crash.Point("merge-copied")
			records := done.Add(p.records)
			m.Progress(records, m.merged.Counts.Records)
			m.attempt.Follow(func() Progress { return Progress{Done: chunk.Counts{Records: records}} })
			return nil
		})
	}
	return group.Wait()
}

// resume takes over the file of an interrupted merge whose process has ended. What is in it
// is verified piece by piece.
func (m *merge) resume(path string) bool {
	return m.before != "" && link(filepath.Join(m.before, filepath.Base(path)), path) == nil
}

// isAt reports whether a file has the body of the piece at an offset.
func (p *piece) isAt(ctx context.Context, file io.ReaderAt, offset int64) bool {
	return p.read(func(in *os.File) error {
		rest := p.sum.Bytes - p.to
		whole := io.MultiReader(io.NewSectionReader(in, 0, p.from), io.NewSectionReader(file, offset, p.to-p.from), io.NewSectionReader(in, p.to, rest))
		return p.check(ctx, whole, io.Discard)
	}) == nil
}

// copyTo copies the body of the piece and verifies all of it.
func (p *piece) copyTo(ctx context.Context, out io.Writer) error {
	return p.read(func(in *os.File) error { return p.check(ctx, in, out) })
}

// check reads the bytes of the piece, verifies them, and copies its body to out.
func (p *piece) check(ctx context.Context, in io.Reader, out io.Writer) error {
	var sum chunk.FileSum
	p.body = chunk.FileSum{}
	out = io.MultiWriter(out, &p.body)
	for buffer := make([]byte, 1<<20); ; {
		n, readErr := in.Read(buffer)
		from, to := max(p.from-sum.Bytes, 0), min(p.to-sum.Bytes, int64(n)) // of the buffer
		_, _ = sum.Write(buffer[:n])
		if sum.Bytes > p.sum.Bytes {
			return p.damaged("it has more than %d bytes", p.sum.Bytes)
		}
		if from < to {
			if _, err := out.Write(buffer[from:to]); err != nil {
				return storage("write the merged output", err)
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			if sum != p.sum {
				return p.damaged("it has %d bytes with checksum %s instead of %d with %s", sum.Bytes, chunk.CRC(sum.CRC), p.sum.Bytes, chunk.CRC(p.sum.CRC))
			}
			return nil
		case readErr != nil:
			return storage("read shard", readErr)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
