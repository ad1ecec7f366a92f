package input

import (
	"context"

	"github.com/gpurun/gpurun/chunk"
)

// count counts the file, as far as needed.
func (s *fileSource) count(ctx context.Context) (err error) {
	want := int64(-1)
	if s.options.Limit > 0 {
		// One more, because the last record ends where the next one begins.
		want = s.options.Offset + s.options.Limit + 1
	}
	s.blocks, err = scanBlocks(ctx, s.file, s.begin, s.end, want)
	s.sums = sumsOf(s.begin, firstBlocks(s.blocks, want), fileStretches)
	return err
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

// cutRecords splits the counted records by ceiling division.
func (s *fileSource) cutRecords() error {
	all := sum(s.blocks)
	first := min(s.options.Offset, all.records)
	last := all.records
	if limit := s.options.Limit; limit > 0 && limit < last-first {
		last = first + limit
	}
	s.total, s.known = last-first, true

	borders := []int64{first}
	if size := chunk.Size(s.total, s.options.Chunks, s.options.BatchSize); size > 0 {
		for record := first + size; record < last; record += size {
			borders = append(borders, record)
		}
	}
	borders = append(borders, last)
	if err := s.cutAt(borders, all); err != nil {
		return s.scanFault(err)
	}
	return nil
}

// cutAt creates the chunks between the given records.
func (s *fileSource) cutAt(borders []int64, all count) error {
	finder := &borderFinder{source: s, buffer: make([]byte, readBytes), from: s.begin}
	s.chunks, s.blank = nil, 0
	var previous chunk.Place
	for i, record := range borders {
		at := chunk.Place{Offset: s.begin, Line: 1}
		switch {
		case i == 0 && s.options.Offset == 0: // blank lines before the first record belong to it
		case record >= all.records:
			at = chunk.Place{Offset: s.end, Line: all.lines + 1}
		default:
			var err error
			if at, err = finder.find(record); err != nil {
				return err
			}
		}
		if i > 0 {
			records := record - borders[i-1]
			s.blank += at.Line - previous.Line - records
			if records > 0 {
				s.chunks = append(s.chunks, chunk.Chunk{
					File: s.path, Offset: previous.Offset, Length: at.Offset - previous.Offset,
					First: s.before.records + borders[i-1], Records: records, Line: s.before.lines + previous.Line,
				})
			}
		}
		previous = at
	}
	return nil
}

// borderFinder finds where records start. It must be asked in ascending order.
type borderFinder struct {
	source *fileSource
	buffer []byte
	block  int
	before count // in the blocks before block
	from   int64 // where in block to continue: its start or the last border
	passed count // before from
}

func (f *borderFinder) find(record int64) (chunk.Place, error) {
	s := f.source
	for f.before.records+s.blocks[f.block].records <= record {
		f.before.add(s.blocks[f.block].count)
		f.block++
		f.from, f.passed = s.begin+int64(f.block)*blockBytes, f.before
	}
	to := min(s.begin+int64(f.block+1)*blockBytes, s.end)
	found, err := findRecord(s.file, f.from, to, s.begin, s.end, f.buffer, f.passed, record)
	f.from, f.passed = found.Offset, count{lines: found.Line - 1, records: record}
	return found, err
}
