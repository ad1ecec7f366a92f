package commit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode/npy"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// checkReaders have the read size for checking the output.
var checkReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 1<<20) }}

// CheckOutput reads the durable output back and returns how many of its segments, counted
// from the first, are intact, and whether all of the output is: what ends its files belongs to no
// segment. CutBack discards the rest. A missing or short file counts as damage; a file that cannot
// be read is a Storage fault. An output can be cut back only to a mark: between two marks, a
// segment may begin in one unit and end in another.
//
// It only reads, and only durable data, so that the output may be appended to meanwhile.
func (s State) CheckOutput(ctx context.Context, options Options) (good int, whole bool, err error) {
	return s.check(options, func(t track, e *extent) error { return t.read(ctx, e) })
}

// CheckSizes is like CheckOutput but only compares file sizes.
func (s State) CheckSizes(options Options) (good int, whole bool, err error) {
	return s.check(options, track.measure)
}

func (s State) check(options Options, one func(track, *extent) error) (good int, whole bool, err error) {
	e := extent{segments: len(s.Output), whole: true}
	for _, t := range s.tracks(options) {
		if err := one(t, &e); err != nil {
			return 0, false, fault.WriteFailed.New("check output: %w", err)
		}
	}
	return s.floor(e.segments), e.whole, nil
}

// extent is how much of the output is intact.
type extent struct {
	segments int
	whole    bool
}

// end notes that the output is damaged after so many segments.
func (e *extent) end(segments int) { *e = extent{segments: min(e.segments, segments)} }

// track is files of the output that are read one after another, and what must be in them.
type track struct {
	files  []piece
	pieces []content
}

// content is what a piece of a track must be.
type content struct {
	sum      chunk.FileSum
	any      bool  // only its size is known
	segments int   // how many are intact if it is not
	failures bool  // it consists of failures,
	base     int64 // whose positions count from here in sum
}

// tracks returns what the files of the durable output must contain.
func (s State) tracks(options Options) (all []track) {
	for _, f := range options.files() {
		t := track{files: s.held(options, f)}
		var base int64
		switch {
		case len(t.files) == 0:
			continue
		case f.kind == chunk.Results:
			t.pieces = s.units(Unit.sum)
		case f.kind >= chunk.PartFiles:
			t.pieces = s.arrayContent(options, f.kind-chunk.PartFiles)
		default:
			for i, segment := range s.Output {
				t.pieces = append(t.pieces, content{sum: segment.Files[f.kind], segments: i, failures: f.kind == chunk.Failures, base: base})
				if options.Format.Table {
					base += segment.Lines
				} else {
					base += segment.Files[chunk.Results].Bytes
				}
			}
		}
		all = append(all, t)
	}
	return all
}

// arrayContent returns what an array must contain. Its header is written at the end, again if the output
// is not whole.
func (s State) arrayContent(options Options, i int) []content {
	header := content{sum: chunk.FileSum{Bytes: npy.HeaderBytes}, any: true, segments: len(s.Output)}
	if l := options.Layout.Get(); s.Complete && l != nil {
		header.sum, header.any = chunk.FileSum{}, false
		_, _ = header.sum.Write(options.Arrays[i].Header(l, s.size(chunk.PartFiles+i)))
	}
	return append([]content{header}, s.units(func(u Unit) chunk.FileSum { return u.side(i) })...)
}

// units returns what units must have in one of the files.
func (s State) units(in func(Unit) chunk.FileSum) (pieces []content) {
	for _, e := range s.Encoded {
		before := s.segmentsBefore(e.First)
		for i, u := range e.Units {
			piece := content{sum: in(u), segments: before}
			if i > 0 && u.isTail() { // only what ends the file is written again
				piece.segments = s.segmentsBefore(e.Next)
			}
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// measure finds how much of the output the files are long enough for.
func (t track) measure(e *extent) error {
	var have, end int64
	for _, file := range t.files {
		size, err := sizeOf(file.path)
		if err != nil {
			return err
		}
		if have += min(size, file.length); size < file.length {
			break
		}
	}
	for i, p := range t.pieces {
		if end += p.sum.Bytes; end > have && i == 0 {
			e.end(0)
		} else if end > have {
			e.end(p.segments)
		}
	}
	return nil
}

// read finds how much of the output is intact.
func (t track) read(ctx context.Context, e *extent) error {
	in := &piecesReader{pieces: t.files}
	defer in.close()
	buffered := checkReaders.Get().(*bufio.Reader)
	buffered.Reset(&interruptible{ctx, in})
	defer func() {
		buffered.Reset(nil)
		checkReaders.Put(buffered)
	}()
	for i, p := range t.pieces {
		var sum chunk.FileSum
		var err error
		if piece := io.LimitReader(buffered, p.sum.Bytes); p.failures {
			_, err = record.MoveFailures(&sum, piece, -p.base)
		} else {
			_, err = io.Copy(&sum, piece)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isReadFault(err):
			return err
		case sum.Bytes < p.sum.Bytes && i == 0:
			e.end(0)
		case err != nil || sum.Bytes < p.sum.Bytes || sum != p.sum && !p.any:
			e.end(p.segments)
		}
	}
	return nil
}

// sizeOf returns the size of a file, or 0 if there is no regular file.
func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	switch {
	case isReadFault(err):
		return 0, err
	case err != nil || !info.Mode().IsRegular():
		return 0, nil
	}
	return info.Size(), nil
}

// Named reports whether some file of a complete output already has its final name.
func (s State) Named(options Options) bool {
	return slices.ContainsFunc(options.files(), func(f outputFile) bool { return !f.direct() && s.held(options, f) == nil })
}

// direct reports whether the file is written to without a temporary name, or is none.
func (f outputFile) direct() bool {
	return f.final == "" || isDirect(f.final) && !files.IsFolder(f.final)
}

// size returns how much of a file is durable. An array without rows has no header yet.
func (s State) size(kind int) int64 {
	switch {
	case kind < chunk.PartFiles:
		return s.Durable.Sizes[kind]
	case len(s.Encoded) == 0 && !s.Complete:
		return 0
	}
	return npy.HeaderBytes + s.sideSum(kind-chunk.PartFiles).Bytes
}

// held returns where a file of the durable output is: in its temporary file, or in the parts of a folder. It
// is nil for one without a temporary name, and for one that already has its final name.
func (s State) held(options Options, f outputFile) (all []piece) {
	if f.direct() {
		return nil
	}
	if _, err := os.Lstat(f.temporary); s.Complete && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if f.kind != chunk.Results || options.PartBytes <= 0 {
		return []piece{{f.temporary, 0, s.size(f.kind)}}
	}
	parts := s.cutParts(options).parts
	if s.Complete && NewManifest(parts, s.Durable.Tally.Counts, options.Format).heldBy(files.RealPath(filepath.Clean(f.final))) {
		return nil // the temporary folder is the one it replaced
	}
	for _, p := range parts {
		all = append(all, piece{filepath.Join(f.temporary, p.Name), 0, p.Bytes})
	}
	return all
}

// isReadFault reports whether a file exists but cannot be read. Such a file may be intact,
// so nothing may be discarded because of it.
func isReadFault(err error) bool {
	var path *os.PathError
	return errors.As(err, &path) &&
		!errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOTDIR)
}

// interruptible is a reader that fails when its context ends.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}

// CutBack discards the output after its first n segments, also in the journal: the records of
// further ones, which are computed again unless they are available as parts, and what ends its
// files.
//
// A further line cannot revoke a durable point, so CutBack atomically and durably replaces
// the journal with one that describes only this state.
func (s *State) CutBack(n int, journal *Journal) error {
	s.Output, s.Complete = s.Output[:n:n], false
	s.Durable = Durable{}
	for _, segment := range s.Output {
		s.Durable.Next, s.Durable.Place = segment.End(), segment.Next
		s.Durable.Tally.Add(segment.Tally)
		for i := range s.Durable.Sizes {
			s.Durable.Sizes[i] += segment.Files[i].Bytes
		}
	}
	// The units after the last segment go, and what ends the file there.
	s.Encoded = slices.DeleteFunc(slices.Clone(s.Encoded), func(e Encoded) bool {
		return n == 0 || e.Next > s.Durable.Next || e.Next == e.First
	})
	if marks := len(s.Encoded); marks > 0 {
		last := &s.Encoded[marks-1]
		if k := len(last.Units) - 1; k > 0 && last.Units[k].isTail() {
			last.Units = last.Units[:k:k]
		}
	}
	s.Durable.Sizes[chunk.Results] = s.ResultSum().Bytes
	return journal.rewrite(s.entries())
}

// CutBackTo discards the results of all records from one on, also those in parts, and of some
// before it if the output is encoded.
func (s *State) CutBackTo(record int64, journal *Journal) error {
	n := s.floor(s.segmentsBefore(record))
	if n < len(s.Output) {
		s.Segments = nil // they follow
	}
	s.Segments = slices.DeleteFunc(s.Segments, func(segment chunk.Segment) bool { return segment.End() > record })
	return s.CutBack(n, journal)
}

// entries returns the shortest list of entries that leads to the state.
func (s State) entries() []Entry {
	var all []Entry
	for i := range s.Output {
		all = append(all, Entry{Segment: &s.Output[i]})
	}
	for i := range s.Encoded {
		all = append(all, Entry{Encoded: &s.Encoded[i]})
	}
	if len(s.Output) > 0 {
		all = append(all, Entry{Durable: &s.Durable})
	}
	for i := range s.Segments {
		all = append(all, Entry{Segment: &s.Segments[i]})
	}
	return all
}

// segmentsBefore returns how many segments of the output end at or before a record.
func (s State) segmentsBefore(record int64) int {
	return sort.Search(len(s.Output), func(i int) bool { return s.Output[i].End() > record })
}

// floor returns how many of the first n segments can be kept: up to a mark.
func (s State) floor(n int) int {
	if n == len(s.Output) {
		return n
	}
	mark := 0
	for _, e := range s.Encoded {
		if before := s.segmentsBefore(e.Next); before <= n {
			mark = before
		}
	}
	return mark
}
