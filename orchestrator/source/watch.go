package source

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// Workers open files by name, chunk by chunk, and another process may replace a file or write
// to it. What comes from a file is therefore checked before it goes into the journal, so that
// everything in the journal comes from one input.

// Check returns a fault if the file that a segment comes from is no longer the one that the job
// was planned for. Files of a bundle were checked after they were copied, and a change after
// that does not matter to a segment. Only one goroutine may call Check and CheckAll.
func (s *Source) Check(segment chunk.Segment) error {
	number := s.SectionOf(segment.First)
	if s.ranges[number].bundle() {
		return nil
	}
	return s.check(s.ranges[number].from, s.compareRead(number, segment.Start.Offset, segment.Next.Offset))
}

// CheckAll checks every file.
func (s *Source) CheckAll() error {
	for number, r := range s.ranges {
		var compare compareRead
		if !r.bundle() {
			compare = s.compareRead(number, 0, math.MaxInt64)
		}
		for i := r.from; i < r.to; i++ {
			if err := s.check(i, compare); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareRead compares what the job has read of a file of plain lines with its content now. It
// returns input.ErrOtherBytes if that differs, or may.
type compareRead func(file File, now os.FileInfo) error

// check returns a fault if a file has changed. A file of which only the times have changed counts
// as unchanged, and so does a plain file that was appended to: the planned part is intact. The
// user then gets a line, once, unless it is certain that the content is the same and the
// modification time is: a link to the file, another mode or another name for a while change its
// ctime, as an edit with a restored time does.
func (s *Source) check(i int, compare compareRead) error {
	file := &s.inputs.Files[i]
	if file.stream != nil {
		return nil
	}
	now, certain, err := s.compare(*file, compare)
	if err != nil || now == nil {
		return err
	}
	switch {
	case now.Size() > file.info.Size():
		s.report("appended", "the input "+file.Name+" was appended to while the job was reading it; the appended records are not in the output")
		return nil
	case !certain:
		s.report("may have changed", "the input "+file.Name+" may have changed while the job was reading it: its times have changed, samples of its content have not")
	case !os.SameFile(now, file.info) || !now.ModTime().Equal(file.info.ModTime()):
		s.report("touched", "the input "+file.Name+" was touched while the job was reading it; its content is unchanged")
	}
	file.info = now
	return nil
}

// report gives the user one line of a kind.
func (s *Source) report(kind, text string) {
	if !s.reported[kind] {
		s.reported[kind] = true
		s.reading.Notice(text)
	}
}

// compare returns a fault if a file has changed, and its state if it counts as unchanged although
// it looks different. It is certain that the content is unchanged if all of it was compared, or
// if it has checksums of its own. compare is safe for concurrent use.
func (s *Source) compare(file File, read compareRead) (touched os.FileInfo, certain bool, err error) {
	now, err := os.Stat(file.Path)
	if err != nil {
		return nil, false, fault.InputUnreadable.New("check input: %w", err)
	}
	if sameFile(now, file.info) {
		return nil, true, nil
	}
	plain := file.kind.Plain() && read != nil
	certain = plain || file.info.Size() <= sampledWhole || file.kind.Compressed()
	switch grown := now.Size() > file.info.Size() && os.SameFile(now, file.info); {
	case now.Size() != file.info.Size() && !(grown && plain), !grown && !file.sameSamples():
		err = input.ErrOtherBytes
	case plain:
		err = read(file, now)
	}
	switch {
	case err == nil:
		return now, certain, nil
	case !errors.Is(err, input.ErrOtherBytes):
		return nil, false, fault.InputUnreadable.New("compare input: %w", err)
	}
	describe := func(info os.FileInfo) string { return info.ModTime().UTC().Format(time.RFC3339Nano) }
	return nil, false, s.reading.Changed(fault.InputChanged.New("the input %s changed while the job was reading it: it had %d bytes (modified %s), now %d (modified %s)",
		file.Name, file.info.Size(), describe(file.info), now.Size(), describe(now)))
}

// compareRead compares what was read of a section of plain lines: between the offsets if the file
// has grown, else everything. The rest of the same file is read as it is now.
func (s *Source) compareRead(number int, from, to int64) compareRead {
	return func(file File, now os.FileInfo) error {
		sums, whole := s.SumsOf(number)
		switch {
		case now.Size() > file.info.Size():
			if len(sums.Stretches) == 0 { // its lines were copied
				return input.ErrOtherBytes
			}
			return sums.Check(file.Path, from, to)
		case !whole && !os.SameFile(now, file.info):
			return input.ErrOtherBytes
		}
		return sums.CheckAll(file.Path)
	}
}

// checkedLines are the lines of a file that is compared when they have been read.
type checkedLines struct {
	io.ReadCloser
	source *Source
	file   File
	sum    chunk.FileSum
}

func (l *checkedLines) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	_, _ = l.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if _, _, changed := l.source.compare(l.file, l.compareRead); changed != nil {
			return n, changed
		}
	}
	return n, err
}

// compareRead compares all of a file of plain lines.
func (l *checkedLines) compareRead(file File, _ os.FileInfo) error {
	sum, err := chunk.SumFile(context.Background(), file.Path)
	if err == nil && sum != l.sum {
		return input.ErrOtherBytes
	}
	return err
}
