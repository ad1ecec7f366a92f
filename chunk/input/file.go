package input

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Split is how a file is split into chunks.
type Split string

const (
	// SplitAuto splits by records up to autoBytes, by bytes above.
	SplitAuto Split = ""
	// SplitRecords first counts all records and gives every chunk the same number of them,
	// by ceiling division.
	SplitRecords Split = "records"
	// SplitBytes splits at the line borders nearest to equal numbers of bytes and counts
	// records while the job runs, so the first chunk is available at once.
	SplitBytes Split = "bytes"
)

const (
	// autoBytes is the size above which counting first would keep devices waiting for
	// seconds.
	autoBytes = 16 << 30
	// maxByteChunk limits the wait for one chunk of a file split by bytes.
	maxByteChunk = 1 << 30
)

// CutOptions say how to split an input into chunks.
type CutOptions struct {
	Limits
	// Chunks is the number of chunks wanted, at least 1.
	Chunks int
	// BatchSize is what chunk sizes are rounded up to a multiple of.
	BatchSize int
	Split     Split
	// Bytes, if set, splits by bytes into chunks of about this size, to repeat an earlier
	// split.
	Bytes int64
	// Window, if set, is the only part of the file that is read, as an earlier count found
	// it. Limits then do not apply.
	Window *chunk.Chunk
}

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// fileSource is a regular file.
type fileSource struct {
	path       string
	file       *os.File
	begin, end int64 // the byte range used: from after the byte order mark to the size at opening
	before     count // what precedes a window
	options    CutOptions

	mu     sync.Mutex
	total  int64
	known  bool
	blank  int64
	blocks []scanned     // split by records: the counted blocks
	sums   Sums          // of what has been scanned
	chunks []chunk.Chunk // split by records: all of them
	given  int           // number of chunks returned by Next

	ahead  chan cut // split by bytes
	cancel context.CancelFunc
}

type cut struct {
	chunk chunk.Chunk
	sum   chunk.FileSum // of its bytes, if it was split by bytes
	err   error
}

// Open opens a regular file as a source. If it is split by records, it is counted
// before Open returns. A path that is missing, unreadable or not a regular file is a
// usage fault.
func Open(ctx context.Context, path string, options CutOptions) (Source, error) {
	if err := CheckRegular(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Usage, "open input: %w", err)
	}
	source, err := newFileSource(ctx, path, file, options)
	if err != nil {
		file.Close()
		return nil, err
	}
	return source, nil
}

// CheckRegular rejects an input that is not a regular file. It checks before the file is
// opened, because opening a pipe waits for its writer.
func CheckRegular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fault.New(fault.Usage, "open input: %w", err)
	case info.IsDir():
		return fault.New(fault.Usage, "input %s is a folder; name a file in it", path)
	case !info.Mode().IsRegular():
		return fault.New(fault.Usage, "input %s is not a regular file; pipe it in: gpurun run … - < %s", path, path)
	}
	return nil
}

func newFileSource(ctx context.Context, path string, file *os.File, options CutOptions) (*fileSource, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fault.New(fault.Usage, "open input: %w", err)
	}
	s := &fileSource{path: path, file: file, end: info.Size(), options: options}
	var head [3]byte
	if n, err := file.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return nil, fault.New(fault.Usage, "read input %s: %w", path, err)
	} else if n == len(head) && string(head[:]) == string(byteOrderMark) {
		s.begin = int64(len(byteOrderMark))
	}
	if err := s.openWindow(); err != nil {
		return nil, err
	}
	if s.cutsByBytes() {
		s.startAhead()
		return s, nil
	}
	if err := s.count(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fault.New(fault.Canceled, "scan input: %w", ctx.Err())
		}
		return nil, s.scanFault(err)
	}
	return s, s.cutRecords()
}

// openWindow restricts the source to its window.
func (s *fileSource) openWindow() error {
	w := s.options.Window
	if w == nil {
		return nil
	}
	if w.Offset < s.begin || w.Length < 0 || w.Offset+w.Length > s.end {
		return fault.New(fault.Conflict, "the input %s has %d bytes, but its records %d to %d were at bytes %d to %d when it was counted",
			s.path, s.end, w.First, w.First+w.Records-1, w.Offset, w.Offset+w.Length)
	}
	s.begin, s.end = w.Offset, w.Offset+w.Length
	s.before = count{records: w.First, lines: w.Line - 1}
	s.options.Limits = Limits{}
	return nil
}

func (s *fileSource) scanFault(err error) error {
	return fault.New(fault.Storage, "scan input %s: %w", s.path, err)
}

// Recut splits the file again without counting it again.
func (s *fileSource) Recut(chunks, batchSize int) error {
	if s.ahead != nil {
		s.stopAhead()
	}
	s.options.Chunks, s.options.BatchSize = chunks, batchSize
	if s.ahead == nil {
		return s.cutRecords()
	}
	s.total, s.blank, s.known, s.sums = 0, 0, false, Sums{}
	s.startAhead()
	return nil
}

// cutsByBytes reports whether to split by bytes. A range of records can only be found by
// counting.
func (s *fileSource) cutsByBytes() bool {
	if s.options.Offset > 0 || s.options.Limit > 0 {
		return false
	}
	return s.options.Bytes > 0 || s.options.Split == SplitBytes || s.options.Split == SplitAuto && s.end-s.begin > autoBytes
}

func (s *fileSource) Next(ctx context.Context) (chunk.Chunk, error) {
	if s.ahead == nil {
		if s.given == len(s.chunks) {
			return chunk.Chunk{}, io.EOF
		}
		s.given++
		return s.chunks[s.given-1], nil
	}
	c := s.nextAhead(ctx)
	return c.chunk, c.err
}

// nextAhead returns the next chunk of a file that is split by bytes.
func (s *fileSource) nextAhead(ctx context.Context) cut {
	for {
		select {
		case c, ok := <-s.ahead:
			if !ok {
				return cut{err: io.EOF}
			}
			if c.err == nil && c.chunk.Records == 0 {
				continue // blank lines only
			}
			return c
		case <-ctx.Done():
			return cut{err: ctx.Err()}
		}
	}
}

// Cut returns how the file was split.
func (s *fileSource) Cut() Cut {
	if s.ahead != nil {
		return Cut{Bytes: s.byteTarget()}
	}
	return Cut{Chunks: s.chunks, Records: s.total, Blank: s.blank, Sums: &s.sums}
}

// Sums returns the checksums of what has been scanned.
func (s *fileSource) Sums() Sums {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums
}

func (s *fileSource) Total() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.known
}

func (s *fileSource) Blank() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blank
}

// Release does nothing: the input file belongs to the user.
func (s *fileSource) Release(chunk.Chunk) {}

func (s *fileSource) Close() error {
	if s.ahead != nil {
		s.stopAhead()
	}
	return s.file.Close()
}
