package input

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// section is a Section of a source: one goroutine reads it, and what it finds waits for the
// section's turn.
type section struct {
	Section
	source *Source
	number int
	limits Limits        // in the section
	before loggedSection // what the log says

	// The following is guarded by the source's lock.

	first  int64          // the number of its first record, once it has its turn
	chunks []sectionChunk // that wait for their turn
	bytes  int64          // of a plain file: how many are in chunks
	taken  int            // how many chunks had their turn
	logged int            // how many are in the log
	sums   Sums           // of what was read of plain lines
	whole  bool           // that is all of them
	ended  bool
	end    sectionEnd
	err    error

	endLogged bool
}

// sectionChunk is a chunk with what the log says about it. Its First counts from the start
// of its section.
type sectionChunk struct {
	chunk.Chunk
	logged loggedChunk
}

// addCut adds the chunks of a section that need not be read. job.json has them, so the log
// does not.
func (r *section) addCut() {
	if r.Cut == nil {
		return
	}
	cut := *r.Cut
	r.source.total += cut.Records
	r.source.blank += cut.Blank
	r.sums, r.whole, r.ended, r.endLogged, r.logged = *cut.Sums, true, true, true, len(cut.Chunks)
	r.end = sectionEnd{Seen: cut.Records, Records: cut.Records}
	for _, c := range cut.Chunks {
		r.chunks = append(r.chunks, sectionChunk{Chunk: c})
	}
}

// limit prepares to read the section: it finds what the limits leave of it, and what the log
// says about it. The caller must hold the source's lock.
func (r *section) limit() {
	s := r.source
	r.before = *s.options.Log.section(r.number)
	r.limits.Offset = max(0, s.options.Offset-r.first)
	if s.options.Limit == 0 {
		return
	}
	used := s.used
	if s.counted {
		used = max(0, r.first-s.options.Offset)
	}
	r.limits.Limit = s.options.Limit - used
}

func (r *section) read(ctx context.Context) (sectionEnd, error) {
	// The limits may be known to select nothing of the section.
	if r.source.counted && (r.limits.Offset > 0 && r.limits.Offset >= r.Records || r.source.options.Limit > 0 && r.limits.Limit <= 0) {
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
func (r *section) skip(ctx context.Context) (_ sectionEnd, done bool, _ error) {
	end, keep := r.before.end, r.source.options.Keep
	if end == nil || end.Bad != "" || !r.Same && !keep {
		return sectionEnd{}, false, nil
	}
	for _, logged := range r.before.chunks {
		if r.holds(logged) {
			continue
		}
		if !keep || len(r.Files) > 1 || !logged.spooled(ctx, r.spoolPath(logged.Index)) {
			return sectionEnd{}, false, nil
		}
	}
	for _, logged := range r.before.chunks {
		c := chunk.Chunk{First: logged.At, Records: logged.Records, Line: logged.Line, Length: logged.Bytes, Source: r.Files[0].Name, Rows: logged.Rows}
		if !r.holds(logged) {
			c.File = r.spoolPath(logged.Index)
			if logged.Blobs.Bytes > 0 {
				c.Blobs = r.source.options.Blobs
			}
		}
		if err := r.emit(ctx, c, logged, 0); err != nil {
			return sectionEnd{}, true, err
		}
	}
	return *end, true, r.emit(ctx, chunk.Chunk{}, loggedChunk{}, end.Blank)
}

// holds reports whether an earlier run has computed a chunk that it has logged.
func (r *section) holds(logged loggedChunk) bool {
	return r.source.options.Earlier.Holds(logged.First, logged.Records)
}

func (r *section) spoolPath(index int) string {
	return filepath.Join(r.source.options.Dir, fmt.Sprintf("spool-%06d-%06d.jsonl", r.number, index))
}

// readPlain splits a file of plain lines.
func (r *section) readPlain(ctx context.Context) (end sectionEnd, err error) {
	plain, file, err := openPlain(r.Path, r.Window)
	if err != nil {
		return end, err
	}
	defer file.Close()
	s := r.source
	at, index := chunk.Place{Offset: plain.begin, Line: plain.before.lines + 1}, 0
	for at.Offset < plain.end {
		next, blocks, err := plain.piece(ctx, file, at.Offset, max(1, s.options.ChunkBytes))
		if err != nil {
			return end, err
		}
		all, sums := sum(blocks), sumsOf(at.Offset, blocks, chunkStretches)
		s.mu.Lock()
		r.sums = r.sums.join(sums)
		s.mu.Unlock()
		c := chunk.Chunk{
			File: r.Path, Offset: at.Offset, Length: next - at.Offset, Source: r.Files[0].Name,
			First: plain.before.records + end.Seen, Records: all.records, Line: at.Line,
		}
		at = chunk.Place{Offset: next, Line: at.Line + all.lines}
		end.Blank += all.lines - all.records
		end.Seen += c.Records
		end.Records = end.Seen
		logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, FileSum: sums.all()}
		if c.Records > 0 {
			if was := r.expected(index); was != nil && !logged.same(*was) {
				return end, r.differs(r.Path, *was, "its content is different")
			}
			index++
		}
		if err := r.emit(ctx, c, logged, all.lines-all.records); err != nil {
			return end, err
		}
	}
	s.mu.Lock()
	r.whole = true
	s.mu.Unlock()
	return end, nil
}

// emit appends a chunk to the section's chunks, when there is room. The section whose turn it
// is never waits for space that others occupy. blank is how many blank lines are in it; one
// without records has nothing else.
func (r *section) emit(ctx context.Context, c chunk.Chunk, logged loggedChunk, blank int64) error {
	s := r.source
	s.mu.Lock()
	r.bytes += c.Length
	s.total += c.Records
	s.blank += blank
	if c.Records > 0 && c.File != "" && c.File != r.Path {
		s.spool.add(c, logged.Blobs.Bytes)
	}
	s.mu.Unlock()
	if c.Records > 0 && !s.await(ctx, func() bool {
		waiting := len(r.chunks)
		switch {
		case s.options.Keep && r.Once:
		case r.number == s.head || r.Once:
			if waiting >= s.options.Ahead {
				return false
			}
		case s.spool.bytes > spoolLimit || waiting >= maxWaiting:
			return false
		}
		r.chunks = append(r.chunks, sectionChunk{c, logged})
		s.logKept()
		s.broadcast()
		return true
	}) {
		return ctx.Err()
	}
	return nil
}

// log writes chunks of the section, whose turn it is, up to an index to the log.
func (r *section) log(end int) {
	s := r.source
	for ; r.logged < end && s.err == nil; r.logged++ {
		c := r.chunks[r.logged-r.taken]
		c.logged.First = c.First + r.first
		c.logged.Section, c.logged.Index = r.number, r.logged
		s.err = s.options.Log.add(c.logged)
	}
}

// logEnd writes the end of the section, whose turn it is, to the log. The end of a stream in a
// kept spool becomes durable, after its files: the job can now resume without the stream.
func (r *section) logEnd() {
	s := r.source
	if r.endLogged || s.err != nil {
		return
	}
	r.endLogged = true
	s.err = s.options.Log.add(loggedChunk{Section: r.number, End: &r.end})
	if s.err == nil && s.options.Keep && r.Once {
		if s.err = spoolFault(files.SyncDir(s.options.Dir)); s.err == nil {
			s.err = s.options.Log.sync()
		}
	}
}

// A section that is read again is split where it was split before, and what has been
// computed is compared with the log's checksums.

// expected returns what the log says about a chunk; nil if it does not have it.
func (r *section) expected(index int) *loggedChunk {
	if index >= len(r.before.chunks) {
		return nil
	}
	return &r.before.chunks[index]
}

// differs is the fault of a section that is not what an earlier run has read.
func (r *section) differs(name string, logged loggedChunk, how string) error {
	e := fault.JobChanged.New("the input has changed since the job began: %s is not what an earlier run read at record %d (line %d): %s",
		cmp.Or(name, "the stream"), logged.First, logged.Line, how)
	// What an earlier run has read of a damaged file can be read again, unless a stream is among
	// the sections.
	if s := r.source; !s.once && slices.ContainsFunc(r.Files, func(f SectionFile) bool { return s.options.Log.Bad(f.Number) }) {
		return e.By(&Repaired{First: logged.First})
	}
	return e
}

// Repaired is the error of a file that is not what an earlier run has read. That run found it
// damaged, and damage may show only behind what it has altered. The results of all records from
// First on must be computed again.
type Repaired struct{ First int64 }

func (r *Repaired) Error() string { return "a damaged file was replaced" }
