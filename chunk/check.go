package chunk

import (
	"bufio"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// checkBuffer is how much of the output is read at once while it is checked.
const checkBuffer = 1 << 20

// CheckOutput reads the durable output back and returns how many of its segments,
// from the first on, are as they were written: CutBack gives up the others. A file that
// is missing or too short is damage; one that cannot be read is a Storage fault.
//
// It only reads, and only what is durable, so that more may be appended meanwhile.
func (s State) CheckOutput(ctx context.Context, options OutputOptions) (good int, err error) {
	good, err = s.CheckSizes(options)
	if err != nil {
		return 0, err
	}
	for stream, files := range s.files(options) {
		if len(files) == 0 {
			continue
		}
		in := &filesReader{files: files}
		good, err = s.checkStream(ctx, in, stream, good)
		in.Close()
		if err != nil {
			return 0, fault.New(fault.Storage, "check output: %w", err)
		}
	}
	return good, nil
}

// CheckSizes is CheckOutput by the files' sizes alone.
func (s State) CheckSizes(options OutputOptions) (good int, err error) {
	good = len(s.Output)
	for stream, files := range s.files(options) {
		var have int64
		for _, file := range files {
			size, err := sizeOf(file.path)
			if err != nil {
				return 0, fault.New(fault.Storage, "check output: %w", err)
			}
			have += min(size, file.bytes)
			if size < file.bytes {
				break
			}
		}
		if len(files) == 0 {
			continue
		}
		var end int64
		for i, segment := range s.Output[:good] {
			if end += segment.Files[stream].Bytes; end > have {
				good = i
				break
			}
		}
	}
	return good, nil
}

// sizeOf is the size of a file, 0 for what is none.
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

// Named reports whether some file of a complete output has its name already.
func (s State) Named(options OutputOptions) bool {
	for stream, files := range s.files(options) {
		if files == nil && options.keeps(stream) {
			return true
		}
	}
	return false
}

// keeps reports whether a file of the output is written aside.
func (o OutputOptions) keeps(stream int) bool {
	final, _ := o.paths()
	return final[stream] != "" && (!isDirect(final[stream]) || isFolder(final[stream]))
}

// files are what holds the durable output, with the bytes of each: nil for what is
// not kept aside, or has its name already.
func (s State) files(options OutputOptions) (all [streams][]sizedFile) {
	final, temporary := options.paths()
	for stream, path := range temporary {
		if !options.keeps(stream) {
			continue
		}
		if _, err := os.Lstat(path); s.Complete && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if stream != results || options.PartBytes <= 0 {
			all[stream] = []sizedFile{{path, s.Durable.Sizes[stream]}}
			continue
		}
		parts := cutParts(options.PartBytes, options.First, runs(s.Output)).parts
		if s.Complete && NewManifest(parts, s.Durable.Tally.Counts).heldBy(RealPath(filepath.Clean(final[stream]))) {
			continue // what lies aside is the folder that it was exchanged for
		}
		for _, p := range parts {
			all[stream] = append(all[stream], sizedFile{filepath.Join(path, p.Name), p.Bytes})
		}
	}
	return all
}

// checkStream returns how many of the first n segments are good in one file of the
// output.
func (s State) checkStream(ctx context.Context, in io.Reader, stream, n int) (good int, err error) {
	buffered := bufio.NewReaderSize(&interruptible{ctx, in}, checkBuffer)
	var base int64 // what the failures of a segment count from
	for i, segment := range s.Output[:n] {
		want := segment.Files[stream]
		hash := crc32.New(castagnoli)
		piece := io.LimitReader(buffered, want.Bytes)
		var read int64
		if stream == failures {
			read, err = moveFailures(hash, piece, -base)
		} else {
			read, err = io.Copy(hash, piece)
		}
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case isReadFault(err):
			return 0, err
		case err != nil || read != want.Bytes || hash.Sum32() != want.CRC:
			return i, nil
		}
		base += segment.Files[results].Bytes
	}
	return n, nil
}

// isReadFault tells a file that cannot be read, and may be whole, from one that is
// not there, or is none. Nothing may be given up because of the former.
func isReadFault(err error) bool {
	var path *os.PathError
	return errors.As(err, &path) &&
		!errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOTDIR)
}

// interruptible ends with its context.
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

// filesReader reads the first bytes of each file, one file behind the other. It
// ends at the first file that is shorter, or not there.
type filesReader struct {
	files []sizedFile
	file  *os.File
	left  int64 // of file
}

func (r *filesReader) Read(p []byte) (int, error) {
	for r.left == 0 {
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
		r.file, r.left = file, next.bytes
	}
	n, err := r.file.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		r.files, r.left = nil, 0
	}
	return n, err
}

func (r *filesReader) Close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// CutBack gives up the output behind its first n segments, in the journal too: the
// records behind them are computed again, unless they wait as parts.
//
// A durable point cannot be taken back by another line: the journal is replaced, at
// once and durably, by one that says no more than the state does.
func (s *State) CutBack(n int, journal *Journal) error {
	s.Output, s.Complete = s.Output[:n:n], false
	s.Durable = Durable{}
	for _, segment := range s.Output {
		s.Durable.Next, s.Durable.Place = segment.end(), segment.Next
		s.Durable.Tally.Add(segment.Tally)
		for i := range s.Durable.Sizes {
			s.Durable.Sizes[i] += segment.Files[i].Bytes
		}
	}
	return journal.rewrite(s.entries())
}

// entries are the shortest story that leads to the state.
func (s State) entries() []Entry {
	var all []Entry
	for i := range s.Output {
		all = append(all, Entry{Segment: &s.Output[i]})
	}
	if len(s.Output) > 0 {
		all = append(all, Entry{Durable: &s.Durable})
	}
	for i := range s.Segments {
		all = append(all, Entry{Segment: &s.Segments[i]})
	}
	return all
}
