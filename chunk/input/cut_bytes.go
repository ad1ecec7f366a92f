package input

import (
	"context"

	"github.com/gpurun/gpurun/chunk"
)

// startAhead splits by bytes, one chunk ahead of demand.
func (s *fileSource) startAhead() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.ahead = make(chan cut, 1)
	go func() {
		defer close(s.ahead)
		at, record := chunk.Place{Offset: s.begin, Line: s.before.lines + 1}, s.before.records
		target := s.byteTarget()
		for at.Offset < s.end {
			c, err := s.cutBytes(ctx, at, record, target)
			if err != nil {
				err = s.scanFault(err)
			}
			s.found(record+c.Records-s.before.records, false)
			select {
			case s.ahead <- cut{c.Chunk, c.sum, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			at = chunk.Place{Offset: c.Offset + c.Length, Line: c.Line + c.lines}
			record += c.Records
		}
		s.found(record-s.before.records, true)
	}()
}

func (s *fileSource) stopAhead() {
	s.cancel()
	for range s.ahead { // until the splitting goroutine exits
	}
}

// found records the number of records found so far, or in all.
func (s *fileSource) found(records int64, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total, s.known = records, all
}

type countedChunk struct {
	chunk.Chunk
	lines int64
	sum   chunk.FileSum
}

func (s *fileSource) cutBytes(ctx context.Context, at chunk.Place, record, target int64) (countedChunk, error) {
	end := s.end
	if at.Offset+target < s.end {
		err := eachLineStart(s.file, at.Offset+target, s.end, s.begin, s.end, make([]byte, readBytes),
			func(offset int64, _ bool) bool { end = offset; return false })
		if err != nil {
			return countedChunk{}, err
		}
	}
	blocks, err := scanBlocks(ctx, s.file, at.Offset, end, -1)
	if err != nil {
		return countedChunk{}, err
	}
	all := sum(blocks)
	var sum chunk.FileSum
	for _, block := range blocks {
		sum = sum.Join(block.sum)
	}
	s.mu.Lock()
	s.blank += all.lines - all.records
	s.sums.join(sumsOf(at.Offset, blocks, chunkStretches))
	s.mu.Unlock()
	return countedChunk{lines: all.lines, sum: sum, Chunk: chunk.Chunk{
		File: s.path, Offset: at.Offset, Length: end - at.Offset,
		First: record, Records: all.records, Line: at.Line,
	}}, nil
}

// byteTarget returns the target size of chunks split by bytes.
func (s *fileSource) byteTarget() int64 {
	if s.options.Bytes > 0 {
		return s.options.Bytes
	}
	return min(max(chunk.CeilDiv(s.end-s.begin, int64(max(s.options.Chunks, 1))), 1), maxByteChunk)
}
