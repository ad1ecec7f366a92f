package commit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// checkBuffer is the read size when checking the output.
const checkBuffer = 1 << 20

// CheckOutput reads the durable output back and returns how many of its segments, counted
// from the first, are intact, and whether all of the output is: what ends its files belongs to no
// segment. CutBack discards the rest. A missing or short file counts as damage; a file that cannot
// be read is a Storage fault.
//
// It only reads, and only durable data, so that the output may be appended to meanwhile.
func (s State) CheckOutput(ctx context.Context, options Options) (good int, whole bool, err error) {
	e, err := s.sizes(options)
	if err != nil {
		return 0, false, err
	}
	for kind, files := range s.files(options) {
		if len(files) == 0 {
			continue
		}
		in := &filesReader{files: files}
		if kind == chunk.Results && s.Encoded != nil {
			err = s.checkUnits(ctx, in, &e)
		} else {
			err = s.checkFile(ctx, in, kind, options.Format.Table, &e)
		}
		in.Close()
		if err != nil {
			return 0, false, fault.New(fault.Storage, "check output: %w", err)
		}
	}
	if err := s.checkArrays(ctx, options, &e); err != nil {
		return 0, false, fault.New(fault.Storage, "check output: %w", err)
	}
	return s.floor(e.segments), e.whole, nil
}

// CheckSizes is like CheckOutput but only compares file sizes.
func (s State) CheckSizes(options Options) (good int, whole bool, err error) {
	e, err := s.sizes(options)
	return s.floor(e.segments), e.whole, err
}

// extent is how much of the output is intact.
type extent struct {
	segments int
	whole    bool
}

// end notes that the output is damaged after so many segments.
func (e *extent) end(segments int) { *e = extent{segments: min(e.segments, segments)} }

// sizes returns how much of the output its files are long enough for.
func (s State) sizes(options Options) (extent, error) {
	e := extent{segments: len(s.Output), whole: true}
	for kind, files := range s.files(options) {
		var have, want int64
		for _, file := range files {
			want += file.bytes
		}
		for _, file := range files {
			size, err := sizeOf(file.path)
			if err != nil {
				return extent{}, fault.New(fault.Storage, "check output: %w", err)
			}
			have += min(size, file.bytes)
			if size < file.bytes {
				break
			}
		}
		switch {
		case have == want:
		case kind == chunk.Results && s.Encoded != nil:
			e.end(s.unitsWithin(have))
		default:
			e.end(s.segmentsWithin(kind, have))
		}
	}
	err := s.checkArraySizes(options, &e)
	return e, err
}

// segmentsWithin returns how many segments are in the first bytes of a file.
func (s State) segmentsWithin(kind int, bytes int64) int {
	var end int64
	for i, segment := range s.Output {
		if end += segment.Files[kind].Bytes; end > bytes {
			return i
		}
	}
	return len(s.Output)
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
	for kind, files := range s.files(options) {
		if files == nil && options.keeps(kind) {
			return true
		}
	}
	for _, file := range s.arrayFiles(options) {
		if file.path == "" {
			return true
		}
	}
	return false
}

// keeps reports whether a file of the output is written under a temporary name first.
func (o Options) keeps(kind int) bool {
	final, _ := o.paths()
	return final[kind] != "" && (!isDirect(final[kind]) || files.IsFolder(final[kind]))
}

// files returns the files that hold the durable output, with the size of each. It is nil
// for files without a temporary name and for those that already have their final name.
func (s State) files(options Options) (all [chunk.PartFiles][]sizedFile) {
	final, temporary := options.paths()
	for kind, path := range temporary {
		if !options.keeps(kind) {
			continue
		}
		if _, err := os.Lstat(path); s.Complete && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if kind != chunk.Results || options.PartBytes <= 0 {
			all[kind] = []sizedFile{{path, s.Durable.Sizes[kind]}}
			continue
		}
		parts := s.cutParts(options).parts
		if s.Complete && NewManifest(parts, s.Durable.Tally.Counts, options.Format).heldBy(files.RealPath(filepath.Clean(final[kind]))) {
			continue // the temporary folder is the one it replaced
		}
		for _, p := range parts {
			all[kind] = append(all[kind], sizedFile{filepath.Join(path, p.Name), p.Bytes})
		}
	}
	return all
}

// checkFile finds how much of one file of the output is intact.
func (s State) checkFile(ctx context.Context, in io.Reader, kind int, table bool, e *extent) error {
	buffered := bufio.NewReaderSize(&interruptible{ctx, in}, checkBuffer)
	var base int64 // position of the segment in the results
	for i, segment := range s.Output[:e.segments] {
		want := segment.Files[kind]
		var sum chunk.FileSum
		piece := io.LimitReader(buffered, want.Bytes)
		var read int64
		var err error
		if kind == chunk.Failures {
			read, err = record.MoveFailures(&sum, piece, -base)
		} else {
			read, err = io.Copy(&sum, piece)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isReadFault(err):
			return err
		case err != nil || read != want.Bytes || sum != want:
			e.end(i)
			return nil
		}
		if table {
			base += segment.Lines
		} else {
			base += segment.Files[chunk.Results].Bytes
		}
	}
	return nil
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

type sizedFile struct {
	path  string
	bytes int64
}

// filesReader reads the first bytes of each file, one file after another. It ends at the
// first file that is missing or too short.
type filesReader struct {
	files  []sizedFile
	file   *os.File
	unread int64 // of file
}

func (r *filesReader) Read(p []byte) (int, error) {
	for r.unread == 0 {
		r.Close()
		if len(r.files) == 0 {
			return 0, io.EOF
		}
		next := r.files[0]
		r.files = r.files[1:]
		if next.bytes == 0 {
			continue
		}
		file, err := os.Open(next.path)
		if err != nil {
			r.files = nil
			return 0, err
		}
		r.file, r.unread = file, next.bytes
	}
	n, err := r.file.Read(p[:min(int64(len(p)), r.unread)])
	r.unread -= int64(n)
	if errors.Is(err, io.EOF) {
		r.files, r.unread = nil, 0
	}
	return n, err
}

func (r *filesReader) Close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// CutBack discards the output after its first n segments, also in the journal: the records of
// further ones, which are computed again unless they are available as parts, and what ends its
// files.
//
// A further line cannot revoke a durable point, so CutBack atomically and durably replaces
// the journal with one that describes only this state.
func (s *State) CutBack(n int, journal *Journal) error {
	s.Output, s.Complete = s.Output[:n:n], false
	sides := len(s.Durable.Sides)
	s.Durable = Durable{}
	for _, segment := range s.Output {
		s.Durable.Next, s.Durable.Place = segment.End(), segment.Next
		s.Durable.Tally.Add(segment.Tally)
		for i := range s.Durable.Sizes {
			s.Durable.Sizes[i] += segment.Files[i].Bytes
		}
	}
	s.cutUnits()
	if n > 0 && sides > 0 {
		s.Durable.Sides = sidesOf(sides, s.Encoded)
	}
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
