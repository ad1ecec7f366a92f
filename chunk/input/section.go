package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// readSections reads one section after the other, until there are no more or ctx ends.
func (s *sequence) readSections(ctx context.Context) {
	for {
		number := -1
		window := sectionsAhead
		if s.options.Limits != (Limits{}) && s.counted == nil {
			window = 1
		}
		if !s.await(ctx, func() bool {
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
		s.read(ctx, number)
	}
}

// read reads one section to its end.
func (s *sequence) read(ctx context.Context, number int) {
	r := s.reader(number)
	end, err := r.read(ctx)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.reading[number]
	state.ended, state.end, state.err = true, end, err
	s.logKept()
	s.broadcast()
}

// sectionReader reads one section.
type sectionReader struct {
	*sequence
	Section
	number int
	limits Limits
	before loggedSection // what the log says
}

func (s *sequence) reader(number int) *sectionReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &sectionReader{sequence: s, Section: s.sections[number], number: number, before: s.options.Log.section(number)}
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

// outside reports whether the limits are known to select nothing of the section.
func (r *sectionReader) outside() bool {
	return r.counted != nil && (r.limits.Offset > 0 && r.limits.Offset >= r.Records || r.options.Limit > 0 && r.limits.Limit <= 0)
}

func (r *sectionReader) read(ctx context.Context) (sectionEnd, error) {
	if r.outside() {
		return sectionEnd{Seen: r.Section.Records}, nil
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
	for _, logged := range r.before.chunks {
		if !r.options.Done(logged.First, logged.Records) && !(r.options.Keep && len(r.Files) == 0 && r.intact(ctx, logged)) {
			return sectionEnd{}, false, nil
		}
	}
	for _, logged := range r.before.chunks {
		c := chunk.Chunk{First: logged.At, Records: logged.Records, Line: logged.Line, Length: logged.Bytes, Source: r.Name, Rows: logged.Rows}
		if !r.options.Done(logged.First, logged.Records) {
			c.File = r.spoolPath(logged.Index)
		}
		if err := r.emit(ctx, c, logged, logged.Records); err != nil {
			return sectionEnd{}, true, err
		}
	}
	r.addBlank(end.Blank)
	return *end, true, nil
}

// intact reports whether the spool still has a chunk.
func (r *sectionReader) intact(ctx context.Context, logged loggedChunk) bool {
	sum, err := chunk.SumFile(ctx, r.spoolPath(logged.Index))
	return err == nil && sum == logged.FileSum
}

func (r *sectionReader) spoolPath(index int) string {
	return filepath.Join(r.options.Dir, fmt.Sprintf("spool-%06d-%06d.jsonl", r.number, index))
}

// readPlain cuts a file of plain lines.
func (r *sectionReader) readPlain(ctx context.Context) (end sectionEnd, err error) {
	opened, err := Open(ctx, r.Path, CutOptions{Chunks: 1, BatchSize: 1, Bytes: max(1, r.options.ChunkBytes)})
	if err != nil {
		return end, err
	}
	defer opened.Close()
	source := opened.(*fileSource)
	r.mu.Lock()
	r.plain[r.number] = source
	r.mu.Unlock()
	for index := 0; ; index++ {
		next := source.nextAhead(ctx)
		c := next.chunk
		if errors.Is(next.err, io.EOF) {
			end.Blank = source.Blank()
			r.addBlank(end.Blank)
			return end, nil
		}
		if next.err != nil {
			return end, next.err
		}
		c.Source = r.Name
		end.Seen += c.Records
		end.Records += c.Records
		logged := loggedChunk{At: c.First, Records: c.Records, Line: c.Line, FileSum: next.sum}
		if index < len(r.before.chunks) && !logged.same(r.before.chunks[index]) {
			return end, r.differs(r.Name, r.before.chunks[index], "its content is different")
		}
		if err := r.emit(ctx, c, logged, c.Records); err != nil {
			return end, err
		}
	}
}

// readLines copies the section's lines to spool files.
func (r *sectionReader) readLines(ctx context.Context) (sectionEnd, error) {
	w := &spoolWriter{sectionReader: r, ctx: ctx}
	defer w.discard()
	for _, file := range r.Section.files() {
		if err := w.copyFile(file); err != nil {
			return w.end, err
		}
		if w.done() {
			break
		}
	}
	return w.end, w.finish()
}

// copyFile copies the lines of a file, or those before its damage.
func (w *spoolWriter) copyFile(file SectionFile) error {
	w.name = file.Name
	lines, err := file.Open(w.ctx)
	w.rows = lines.CountsRows
	if err != nil {
		return w.damaged(file, err, 1)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	blocks := readBlocks(ctx, lines)
	w.beginFile(lines)
	err = w.copy(blocks)
	cancel()
	closeLines(lines, blocks, w.Once)
	var damage *readError
	if !errors.As(err, &damage) || w.ctx.Err() != nil {
		return err
	}
	if err := w.dropHeld(); err != nil {
		return err
	}
	return w.damaged(file, damage.error, w.line)
}

// closeLines closes lines that are no longer read. A Read of a stream may never return; it
// is then abandoned.
func closeLines(lines format.Lines, in blocks, once bool) {
	wait := func() {
		for range in.filled { // until the reading goroutine exits
		}
		in.recycle()
		_ = lines.Close()
	}
	if once {
		go wait()
		return
	}
	wait()
}

// readError is an error of the section's reader, in contrast to one of the spool.
type readError struct{ error }

// damaged ends a file at its damage, if the caller wants that, or returns a fault. The
// records before the damage are passed on.
func (w *spoolWriter) damaged(file SectionFile, err error, line int64) error {
	if e := fault.As(err); e != nil && (e.Kind == fault.Conflict || e.Kind == fault.Canceled || e.Kind == fault.Usage) {
		return err // it is not the file's fault
	}
	if wrong := new(format.ColumnError); errors.As(err, &wrong) {
		return fault.New(fault.Usage, "input %s: %w", file.Name, err).Set("columns")
	}
	if w.options.SkipBad && !w.Once {
		w.end.Bad = err.Error()
		if err := w.logDamage(file.Number, false); err != nil {
			return err
		}
		if w.options.Skipped != nil {
			w.options.Skipped(Damage{Name: file.Name, Line: line, Rows: w.rows(), Err: err})
		}
		return nil
	}
	if err := w.cut(true); err != nil {
		return err
	}
	if err := w.logDamage(file.Number, true); err != nil {
		return err
	}
	switch {
	case fault.As(err) != nil:
		return err
	case file.Name == "":
		return fault.New(fault.Storage, "read input: %w", err)
	}
	return fault.New(fault.Storage, "read input %s from %s %d on: %w", file.Name, chunk.Unit(w.rows()), line, err).WithCode(fault.BadInput, "")
}

// logDamage notes that a file may be replaced by an undamaged one before the job resumes.
func (w *spoolWriter) logDamage(file int, stops bool) error {
	if w.Once {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.options.Log.add(loggedChunk{Section: w.number, Damaged: &file, Stops: stops})
}

// emit appends a chunk to those of the section, when there is room.
func (r *sectionReader) emit(ctx context.Context, c chunk.Chunk, logged loggedChunk, lines int64) error {
	s := r.sequence
	s.mu.Lock()
	state := s.reading[r.number]
	state.bytes += c.Length
	s.total += c.Records
	s.blank += lines - c.Records
	if c.File != "" && c.File != r.Path {
		s.files[c.File] = spoolFile{records: c.Records, bytes: c.Length}
		s.spooled += c.Length
	}
	s.mu.Unlock()
	if !s.await(ctx, func() bool {
		if !s.mayQueue(r, len(state.chunks)) {
			return false
		}
		state.chunks = append(state.chunks, spooledChunk{c, logged})
		s.logKept()
		s.broadcast()
		return true
	}) {
		return ctx.Err()
	}
	return nil
}

// mayQueue reports whether a section that has chunks waiting may have one more. The section
// whose turn it is never waits for space that others occupy.
func (s *sequence) mayQueue(r *sectionReader, waiting int) bool {
	switch {
	case s.options.Keep && r.Once:
		return true
	case r.number == s.head || r.Once:
		return waiting < s.options.Ahead
	}
	return s.spooled <= spoolLimit && waiting < maxWaiting
}

// maxWaiting is how many chunks of a section may wait for its turn.
const maxWaiting = 4096

func (r *sectionReader) addBlank(lines int64) {
	r.mu.Lock()
	r.blank += lines
	r.mu.Unlock()
}

// spoolFault is the fault of a spool file that cannot be written.
func spoolFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "spool input: %w", err)
}
