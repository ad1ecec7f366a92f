package input

import (
	"context"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Split is how a file of plain lines is split into chunks.
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

// autoBytes is the size above which counting first would keep devices waiting for seconds.
const autoBytes = 16 << 30

// Counts reports whether the records of a file of this size are counted first.
func (s Split) Counts(bytes int64) bool {
	return s == SplitRecords || s == SplitAuto && bytes <= autoBytes
}

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// plainFile is a file of plain lines, or a window of one.
type plainFile struct {
	path       string
	begin, end int64 // the bytes used: from after the byte order mark to the size at opening
	before     count // what precedes a window
}

// openPlain opens a file of plain lines. A path that is missing, unreadable or not a regular
// file is a usage fault. It checks before opening, because opening a pipe waits for its writer.
func openPlain(path string, window *chunk.Chunk) (p plainFile, file *os.File, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return p, nil, fault.NotAFile.New("input %s is not a regular file", path)
	}
	if err == nil {
		file, err = os.Open(path)
	}
	if err != nil {
		return p, nil, fault.NoSuchInput.New("open input: %w", err)
	}
	p = plainFile{path: path, end: info.Size()}
	var head [3]byte
	n, err := file.ReadAt(head[:], 0)
	switch {
	case err != nil && err != io.EOF:
		err = fault.InputUnreadable.Of(fault.Usage, "read input %s: %w", path, err)
	case n == len(head) && string(head[:]) == string(byteOrderMark):
		p.begin, err = int64(n), nil
	default:
		err = nil
	}
	if w := window; w != nil && err == nil {
		if w.Offset < p.begin || w.Length < 0 || w.Offset+w.Length > p.end {
			err = fault.InputChanged.New("the input %s has %d bytes, but its records %d to %d were at bytes %d to %d when it was counted",
				path, p.end, w.First, w.First+w.Records-1, w.Offset, w.Offset+w.Length)
		}
		p.begin, p.end = w.Offset, w.Offset+w.Length
		p.before = count{records: w.First, lines: w.Line - 1}
	}
	if err != nil {
		file.Close()
	}
	return p, file, err
}

func (p plainFile) scanFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.InputUnreadable.Of(fault.Canceled, "scan input: %w", ctx.Err())
	}
	return fault.InputUnreadable.New("scan input %s: %w", p.path, err)
}

// piece returns where the piece of about target bytes ends that begins at from, and its blocks.
func (p plainFile) piece(ctx context.Context, file *os.File, from, target int64) (end int64, blocks []scanned, err error) {
	if end = p.end; from+target < end {
		lines := lineScan{file, p.begin, p.end, make([]byte, readBytes)}
		err = lines.each(from+target, p.end, func(offset int64, _ bool) bool { end = offset; return false })
	}
	if err == nil {
		blocks, err = scanBlocks(ctx, file, from, end, -1)
	}
	if err != nil {
		return end, nil, p.scanFault(ctx, err)
	}
	return end, blocks, nil
}

// Cut records how an input was split, so that a resumed job can split it the same way.
type Cut struct {
	// Chunks are all chunks of a file that was counted first, Records and Blank the numbers of
	// its records and blank lines, and Sums its checksums. Sums is nil for any other input.
	Chunks  []chunk.Chunk `json:"chunks,omitempty"`
	Records int64         `json:"records,omitempty"`
	Blank   int64         `json:"blank,omitempty"`
	Sums    *Sums         `json:"sums,omitempty"`
	// ChunkRecords, LeastBytes and ChunkBytes are the chunk sizes of an input that is split while it is
	// read: the first two of decoded sections, ChunkBytes of plain files.
	ChunkRecords int64 `json:"chunk_records,omitempty"`
	LeastBytes   int64 `json:"least_bytes,omitempty"`
	ChunkBytes   int64 `json:"chunk_bytes,omitempty"`
	// BundleBytes is how many bytes of small files form one section; 0 if every file is one.
	BundleBytes int64 `json:"bundle_bytes,omitempty"`
}

// Counted reports whether the records were counted first.
func (c Cut) Counted() bool { return c.Sums != nil }

// Count is a file of plain lines whose records have been counted.
type Count struct {
	plainFile
	limits Limits
	blocks []scanned
	sums   Sums
}

// CountFile counts the records of a file, as far as the limits need it, or those of a window
// of it, to which limits do not apply.
func CountFile(ctx context.Context, path string, limits Limits, window *chunk.Chunk) (*Count, error) {
	plain, file, err := openPlain(path, window)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if window != nil {
		limits = Limits{}
	}
	want := int64(-1)
	if limits.Limit > 0 {
		// One more, because the last record ends where the next one begins.
		want = limits.Offset + limits.Limit + 1
	}
	blocks, err := scanBlocks(ctx, file, plain.begin, plain.end, want)
	if err != nil {
		return nil, plain.scanFault(ctx, err)
	}
	return &Count{plain, limits, blocks, sumsOf(plain.begin, firstBlocks(blocks, want), fileStretches)}, nil
}

// firstBlocks returns the blocks that hold the first want records, even if the scan went
// further (want < 0: all).
func firstBlocks(blocks []scanned, want int64) []scanned {
	var found int64
	for i, b := range blocks {
		if found += b.records; want >= 0 && found >= want {
			return blocks[:i+1]
		}
	}
	return blocks
}

// Records returns how many records the limits select.
func (c *Count) Records() int64 {
	all := sum(c.blocks).records
	left := all - min(c.limits.Offset, all)
	if c.limits.Limit > 0 {
		return min(left, c.limits.Limit)
	}
	return left
}

// Cut splits the counted records into this number of chunks by ceiling division, rounded up to
// a multiple of the batch size.
func (c *Count) Cut(chunks, batchSize int) (Cut, error) {
	file, err := os.Open(c.path)
	if err != nil {
		return Cut{}, fault.NoSuchInput.New("open input: %w", err)
	}
	defer file.Close()
	all := sum(c.blocks)
	cut := Cut{Records: c.Records(), Sums: &c.sums}
	first := min(c.limits.Offset, all.records)
	last := first + cut.Records
	finder := &borderFinder{Count: c, lines: lineScan{file, c.begin, c.end, make([]byte, readBytes)}, all: all, from: c.begin}
	at := chunk.Place{Offset: c.begin, Line: 1} // blank lines before the first record belong to it
	if c.limits.Offset > 0 {
		at, err = finder.find(first)
	}
	size := max(1, chunk.Size(cut.Records, chunks, batchSize))
	for from, ended := first, false; !ended && err == nil; {
		to := min(from+size, last)
		var end chunk.Place
		if end, err = finder.find(to); err != nil {
			break
		}
		cut.Blank += end.Line - at.Line - (to - from)
		if to > from {
			cut.Chunks = append(cut.Chunks, chunk.Chunk{
				File: c.path, Offset: at.Offset, Length: end.Offset - at.Offset,
				First: c.before.records + from, Records: to - from, Line: c.before.lines + at.Line,
			})
		}
		at, from, ended = end, to, to == last
	}
	if err != nil {
		return Cut{}, c.scanFault(context.Background(), err)
	}
	return cut, nil
}

// borderFinder finds where records start. It must be asked in ascending order.
type borderFinder struct {
	*Count
	lines  lineScan
	all    count
	block  int
	before count // in the blocks before block
	from   int64 // where in block to continue: its start or the last border
	passed count // before from
}

func (f *borderFinder) find(record int64) (chunk.Place, error) {
	if record >= f.all.records {
		return chunk.Place{Offset: f.end, Line: f.all.lines + 1}, nil
	}
	for f.before.records+f.blocks[f.block].records <= record {
		f.before.add(f.blocks[f.block].count)
		f.block++
		f.from, f.passed = f.begin+int64(f.block)*blockBytes, f.before
	}
	to := min(f.begin+int64(f.block+1)*blockBytes, f.end)
	found, err := f.lines.find(f.from, to, f.passed, record)
	f.from, f.passed = found.Offset, count{lines: found.Line - 1, records: record}
	return found, err
}
