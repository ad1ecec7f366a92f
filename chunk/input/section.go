package input

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// readSections reads one section after the other, until there are no more or ctx ends.
func (s *Source) readSections(ctx context.Context) {
	window := sectionsAhead
	if s.options.Limits != (Limits{}) && s.counted == nil {
		window = 1
	}
	for {
		number := -1
		if !s.await(ctx, func() bool {
			for s.next < len(s.sections) && s.sections[s.next].Cut != nil {
				s.next++
			}
			switch {
			case s.err != nil || s.next >= len(s.sections) || s.head == len(s.sections):
				return true
			case s.next >= s.head+window:
				return false
			}
			number = s.next
			s.next++
			s.reading[number] = &section{}
			return true
		}) || number < 0 {
			return
		}
		r := s.reader(number)
		end, err := r.read(ctx)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		s.mu.Lock()
		state := s.reading[number]
		state.ended, state.end, state.err = true, end, err
		s.logKept()
		s.broadcast()
		s.mu.Unlock()
	}
}

// sectionReader reads one section.
type sectionReader struct {
	Section
	source  *Source
	options *Options
	number  int
	limits  Limits
	before  loggedSection // what the log says
}

func (s *Source) reader(number int) *sectionReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &sectionReader{Section: s.sections[number], source: s, options: &s.options, number: number, before: *s.options.Log.section(number)}
	if s.options.Limits != (Limits{}) {
		seen, used := s.seen, s.used
		if s.counted != nil {
			seen = s.counted[number]
			used = max(0, seen-s.options.Offset)
		}
		r.limits.Offset = max(0, s.options.Offset-seen)
		if s.options.Limit > 0 {
			r.limits.Limit = s.options.Limit - used
		}
	}
	return r
}

func (r *sectionReader) read(ctx context.Context) (sectionEnd, error) {
	// The limits may be known to select nothing of the section.
	if r.source.counted != nil && (r.limits.Offset > 0 && r.limits.Offset >= r.Records || r.options.Limit > 0 && r.limits.Limit <= 0) {
		return sectionEnd{Seen: r.Records}, nil
	}
	end, done, err := r.skip(ctx)
	switch {
	case done || err != nil:
		return end, err
	case r.Path != "":
		return r.readPlain(ctx)
	}
	return r.readLines(ctx)
}

// skip handles a section that need not be read, because the log and the spool have
// everything.
func (r *sectionReader) skip(ctx context.Context) (_ sectionEnd, done bool, _ error) {
	end := r.before.end
	if end == nil || end.Bad != "" || !r.Same && !r.options.Keep {
		return sectionEnd{}, false, nil
	}
	holds := r.options.Earlier.Holds
	for _, logged := range r.before.chunks {
		if holds(logged.First, logged.Records) {
			continue
		}
		sum, err := chunk.SumFile(ctx, r.spoolPath(logged.Index))
		if !r.options.Keep || len(r.Files) > 0 || err != nil || sum != logged.FileSum {
			return sectionEnd{}, false, nil
		}
	}
	for _, logged := range r.before.chunks {
		c := chunk.Chunk{First: logged.At, Records: logged.Records, Line: logged.Line, Length: logged.Bytes, Source: r.Name, Rows: logged.Rows}
		if !holds(logged.First, logged.Records) {
			c.File = r.spoolPath(logged.Index)
		}
		if err := r.emit(ctx, c, logged, 0); err != nil {
			return sectionEnd{}, true, err
		}
	}
	r.addBlank(end.Blank)
	return *end, true, nil
}

func (r *sectionReader) spoolPath(index int) string {
	return filepath.Join(r.options.Dir, fmt.Sprintf("spool-%06d-%06d.jsonl", r.number, index))
}

// readPlain splits a file of plain lines.
func (r *sectionReader) readPlain(ctx context.Context) (end sectionEnd, err error) {
	plain, file, err := openPlain(r.Path, r.Window)
	if err != nil {
		return end, err
	}
	defer file.Close()
	s := r.source
	at, index := chunk.Place{Offset: plain.begin, Line: plain.before.lines + 1}, 0
	for at.Offset < plain.end {
		next, blocks, err := plain.piece(ctx, file, at.Offset, max(1, r.options.ChunkBytes))
		if err != nil {
			return end, err
		}
		all, sums := sum(blocks), sumsOf(at.Offset, blocks, chunkStretches)
		s.mu.Lock()
		s.sums[r.number] = s.sums[r.number].join(sums)
		s.mu.Unlock()
		c := chunk.Chunk{
			File: r.Path, Offset: at.Offset, Length: next - at.Offset, Source: r.Name,
			First: plain.before.records + end.Seen, Records: all.records, Line: at.Line,
		}
		at = chunk.Place{Offset: next, Line: at.Line + all.lines}
		end.Blank += all.lines - all.records
		if c.Records == 0 {
			r.addBlank(all.lines)
			continue
		}
		end.Seen += c.Records
		end.Records = end.Seen
		logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, FileSum: sums.all()}
		if index < len(r.before.chunks) && !logged.same(r.before.chunks[index]) {
			return end, r.differs(r.Path, r.before.chunks[index], "its content is different")
		}
		index++
		if err := r.emit(ctx, c, logged, all.lines-all.records); err != nil {
			return end, err
		}
	}
	s.mu.Lock()
	s.whole[r.number] = true
	s.mu.Unlock()
	return end, nil
}

// emit appends a chunk to those of the section, when there is room. The section whose turn it
// is never waits for space that others occupy. blank is how many blank lines are in it.
func (r *sectionReader) emit(ctx context.Context, c chunk.Chunk, logged loggedChunk, blank int64) error {
	s := r.source
	s.mu.Lock()
	state := s.reading[r.number]
	state.bytes += c.Length
	s.total += c.Records
	s.blank += blank
	if c.File != "" && c.File != r.Path {
		s.files[c.File] = spoolFile{records: c.Records, bytes: c.Length}
		s.spooled += c.Length
	}
	s.mu.Unlock()
	if !s.await(ctx, func() bool {
		waiting := len(state.chunks)
		switch {
		case s.options.Keep && r.Once:
		case r.number == s.head || r.Once:
			if waiting >= s.options.Ahead {
				return false
			}
		case s.spooled > spoolLimit || waiting >= maxWaiting:
			return false
		}
		state.chunks = append(state.chunks, sectionChunk{c, logged})
		s.logKept()
		s.broadcast()
		return true
	}) {
		return ctx.Err()
	}
	return nil
}

func (r *sectionReader) addBlank(lines int64) {
	r.source.mu.Lock()
	r.source.blank += lines
	r.source.mu.Unlock()
}

// differs is the fault of a section that is not what an earlier run has read.
func (r *sectionReader) differs(name string, logged loggedChunk, how string) error {
	e := fault.JobChanged.New("the input has changed since the job began: %s is not what an earlier run read at record %d (line %d): %s",
		cmp.Or(name, "the stream"), logged.First, logged.Line, how)
	// What an earlier run has read of a damaged file can be read again, unless a stream is among
	// the sections.
	if !r.source.once && slices.ContainsFunc(r.files(), func(f SectionFile) bool { return r.options.Log.Bad(f.Number) }) {
		return e.By(&Repaired{First: logged.First})
	}
	return e
}

// Repaired is the error of a file that is not what an earlier run has read. That run found it
// damaged, and damage may show only behind what it has altered. The results of all records from
// First on must be computed again.
type Repaired struct{ First int64 }

func (r *Repaired) Error() string { return "a damaged file was replaced" }

// spoolFault is the fault of a spool file that cannot be written.
func spoolFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.NoCopy.New("spool input: %w", err)
}
