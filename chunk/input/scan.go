package input

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
)

// These sizes are variables so that tests can put block borders anywhere.
var (
	// blockBytes is the unit of the newline scan. Each block keeps only its counts and a
	// checksum, so a terabyte costs a few dozen megabytes.
	blockBytes int64 = 1 << 20
	// readBytes is the size of one read: large enough to be cheap, small enough to stay in
	// the processor's cache. Reading, unlike Mapping, cannot kill the process with SIGBUS
	// when the file shrinks.
	readBytes = 256 << 10
)

var newline = []byte("\n")

// count is how many lines start in a range of bytes, and how many of those are records,
// that is, not blank.
type count struct {
	lines   int64
	records int64
}

func (c *count) add(d count) { c.lines += d.lines; c.records += d.records }

// scanned is the result of scanning one block: the lines that start in it and the checksum
// of its bytes.
type scanned struct {
	count
	sum chunk.FileSum
}

func sum(blocks []scanned) (all count) {
	for _, block := range blocks {
		all.add(block.count)
	}
	return all
}

// scanBlocks counts the lines and records that START in each block of the file from begin
// to end, on all cores. It stops early, at a block border, once want records are found
// (want < 0: never).
func scanBlocks(ctx context.Context, file *os.File, begin, end, want int64) ([]scanned, error) {
	blocks := chunk.CeilDiv(end-begin, blockBytes)
	counts := make([]scanned, blocks)
	var next, found atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(int64(runtime.GOMAXPROCS(0)), blocks) {
		group.Go(func() error {
			buffer := make([]byte, readBytes)
			for {
				// Blocks are taken in order, so that the counted ones form a prefix of the
				// file once all goroutines finish.
				if want >= 0 && found.Load() >= want {
					return nil
				}
				block := next.Add(1) - 1
				if block >= blocks || ctx.Err() != nil {
					return ctx.Err()
				}
				from := begin + block*blockBytes
				to := min(from+blockBytes, end)
				var err error
				if counts[block], err = countLines(file, from, to, begin, end, buffer); err != nil {
					return err
				}
				found.Add(counts[block].records)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return counts[:min(next.Load(), blocks)], nil
}

// countLines counts the lines that start in from..to. Whether a line is blank may depend on
// bytes after to, so it reads on as far as necessary. begin is where the first line starts,
// end where the last one ends.
func countLines(file *os.File, from, to, begin, end int64, buffer []byte) (scanned, error) {
	var b scanned
	summed := &summingReader{file: file, from: from, to: to}
	err := lineScan{summed, begin, end, buffer}.each(from, to, func(_ int64, blank bool) bool {
		b.lines++
		if !blank {
			b.records++
		}
		return true
	})
	b.sum = summed.sum
	return b, err
}

// summingReader sums the bytes from..to of a file as they are read, in order.
type summingReader struct {
	file     io.ReaderAt
	from, to int64
	sum      chunk.FileSum
}

func (r *summingReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := r.file.ReadAt(p, offset)
	next := r.from + r.sum.Bytes // do not sum bytes twice
	if skip := next - offset; skip >= 0 && skip < int64(n) && next < r.to {
		_, _ = r.sum.Write(p[skip:min(int64(n), r.to-offset)])
	}
	return n, err
}

// lineScan finds lines in a file: begin is where the first one starts, end where the last one ends.
type lineScan struct {
	file       io.ReaderAt
	begin, end int64
	buffer     []byte
}

// each calls f with the offset of each line that starts in from..to, and whether the line is blank,
// until f returns false.
func (l lineScan) each(from, to int64, f func(offset int64, blank bool) bool) error {
	// A line starts after each newline, so the byte before from decides whether one starts
	// at from.
	position, start, inLine := from, from, false
	if from > l.begin {
		position, inLine = from-1, true
	}
	for position < l.end {
		limit := to - position
		if limit <= 0 { // it is not known yet whether the last line is blank
			limit = l.end - position
		}
		n, err := readAt(l.file, l.buffer[:min(int64(len(l.buffer)), limit)], position)
		if err != nil {
			return err
		}
		data := l.buffer[:n]
		for i := 0; i < n; {
			if inLine { // its start was reported, or is before from
				newline := bytes.IndexByte(data[i:], '\n')
				if newline < 0 {
					break
				}
				i += newline + 1
				if start = position + int64(i); start >= to {
					return nil
				}
				inLine = false
				continue
			}
			// Only white space in this line so far.
			if isBlank(data[i]) {
				i++
				continue
			}
			if !f(start, data[i] == '\n') {
				return nil
			}
			inLine = true
		}
		position += int64(n)
		if inLine && position >= to {
			return nil
		}
	}
	if !inLine && start < l.end {
		f(start, true) // white space up to the end of the file
	}
	return nil
}

// find returns where a record starts that an earlier scan counted in from..to. before is the
// number of lines and records before from.
func (l lineScan) find(from, to int64, before count, record int64) (at chunk.Place, err error) {
	err = l.each(from, to, func(offset int64, blank bool) bool {
		before.lines++
		if blank {
			return true
		}
		if before.records == record {
			at = chunk.Place{Offset: offset, Line: before.lines}
			return false
		}
		before.records++
		return true
	})
	if err == nil && at.Line == 0 {
		err = errors.New("the file changed while it was being read")
	}
	return at, err
}

// isBlank reports whether ch is white space that does not end a line.
func isBlank(ch byte) bool { return ch == ' ' || ch == '\t' || ch == '\r' }

// readAt reads a full buffer. A file that ends too early has been changed.
func readAt(file io.ReaderAt, buffer []byte, offset int64) (int, error) {
	n, err := file.ReadAt(buffer, offset)
	if n == len(buffer) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the file shrank while it was being read")
	}
	return n, err
}
