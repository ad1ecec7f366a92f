package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Log stores how sections were split into chunks, with a checksum of each, so that a resumed
// job can compare what it reads again and split it the same way. A chunk is in the log before
// it is computed.
//
// It is an append-only file of checked lines. It is not synced, so lines may be missing at its
// end, and the last one may be incomplete. What follows a damaged line is dropped.
type Log struct {
	file   *os.File               // nil for a log that is only read
	before map[int]*loggedSection // of earlier runs
	bad    map[int]bool           // damaged files
	// stopped is the damage that stopped the job, nil if the job has read later sections since.
	stopped *loggedChunk
}

// loggedChunk is one line: a chunk, the end of a section, or a damaged file.
type loggedChunk struct {
	// Section and Index are the number of the section, and of the chunk in it, from 0.
	Section int `json:"section"`
	Index   int `json:"index"`
	// First is the number of the first record in the whole input, At that in the section.
	First   int64 `json:"first"`
	At      int64 `json:"at"`
	Records int64 `json:"records"`
	// Line is the number of the first line in the section. Rows: lines count rows.
	Line int64 `json:"line"`
	Rows bool  `json:"rows,omitempty"`
	chunk.FileSum
	// Blobs is the checksum of the values that the records have beside their lines.
	Blobs chunk.FileSum `json:"blobs,omitzero"`
	// Last: the chunk ended with the section. Open: without a line feed.
	Last bool `json:"last,omitempty"`
	Open bool `json:"open,omitempty"`

	End *sectionEnd `json:"end,omitempty"`
	// Damaged is the number of a file that is damaged. It may be replaced. Stops: the job stopped,
	// and read no file behind it.
	Damaged *int `json:"damaged,omitempty"`
	Stops   bool `json:"stops,omitempty"`
	// Forget: the chunks from this record on no longer count, because a damaged file was
	// replaced.
	Forget *int64 `json:"forget,omitempty"`
}

// same reports whether two chunks of a section hold the same lines.
func (c loggedChunk) same(d loggedChunk) bool {
	return c.FileSum == d.FileSum && c.Blobs == d.Blobs && c.Records == d.Records && c.At == d.At && c.Line == d.Line
}

// sectionEnd is what a section turned out to have.
type sectionEnd struct {
	// Seen is the number of its records, Records how many of them are in chunks.
	Seen    int64 `json:"seen"`
	Records int64 `json:"records"`
	Blank   int64 `json:"blank"`
	// Bad is why it, or the last of its damaged files, could not be read any further.
	Bad string `json:"bad,omitempty"`
}

// loggedSection is what the log says about a section.
type loggedSection struct {
	chunks []loggedChunk
	end    *sectionEnd
}

// OpenLog opens or creates the log and reads it up to the first damaged line.
func OpenLog(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, files.PrivateMode)
	if err != nil {
		return nil, fault.JobFiles.New("open the log of chunks: %w", err)
	}
	l := &Log{file: file}
	data, err := io.ReadAll(file)
	if err == nil {
		good := l.parse(data)
		if err = file.Truncate(good); err == nil {
			_, err = file.Seek(good, io.SeekStart)
		}
	}
	if err != nil {
		file.Close()
		return nil, fault.JobFiles.New("read the log of chunks: %w", err)
	}
	return l, nil
}

// ReadLog returns a log that no process writes to, and that cannot be written; an empty one if
// there is none.
func ReadLog(path string) (*Log, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.JobFiles.New("read the log of chunks: %w", err)
	}
	l := &Log{}
	l.parse(data)
	return l, nil
}

// parse reads lines, and returns the length of those before the first damaged one.
func (l *Log) parse(data []byte) (good int64) {
	l.before, l.bad = make(map[int]*loggedSection), make(map[int]bool)
	for {
		line, rest, whole := bytes.Cut(data, newline)
		payload, err := chunk.ParseLine(line)
		var one loggedChunk
		if !whole || err != nil || json.Unmarshal(payload, &one) != nil || !l.apply(one) {
			return good
		}
		good += int64(len(line)) + 1
		data = rest
	}
}

// apply adds a line, and returns false if it does not follow from those before it. A chunk with
// the number of an earlier one replaces it and what follows it: the stream ended there in one
// run, but not in the next.
func (l *Log) apply(one loggedChunk) bool {
	switch {
	case one.Damaged != nil:
		l.bad[*one.Damaged] = true
		if one.Stops && (l.stopped == nil || *one.Damaged < *l.stopped.Damaged) {
			l.stopped = &one
		}
		return true
	case one.Forget != nil:
		l.forget(*one.Forget)
		return true
	case one.End != nil:
		l.section(one.Section).end = one.End
		return true
	}
	s := l.section(one.Section)
	if one.Index < 0 || one.Index > len(s.chunks) || one.Records <= 0 || one.Bytes <= 0 {
		return false
	}
	s.chunks, s.end = append(s.chunks[:one.Index], one), nil
	if l.stopped != nil && one.Section > l.stopped.Section {
		l.stopped = nil
	}
	return true
}

// forget drops the chunks from a record on.
func (l *Log) forget(first int64) {
	for _, s := range l.before {
		if i := slices.IndexFunc(s.chunks, func(c loggedChunk) bool { return c.First >= first }); i >= 0 {
			s.chunks, s.end = s.chunks[:i], nil
		}
	}
}

// Forget drops the chunks from a record on: the files that follow are no longer what earlier
// runs have read.
func (l *Log) Forget(first int64) error {
	l.forget(first)
	return l.write(loggedChunk{Forget: &first})
}

// section returns what the log says about a section, to be changed.
func (l *Log) section(number int) *loggedSection {
	if l == nil {
		return &loggedSection{}
	}
	if l.before[number] == nil {
		l.before[number] = &loggedSection{}
	}
	return l.before[number]
}

// Covers reports whether the log describes all of the first records.
func (l *Log) Covers(records int64) bool {
	if l == nil {
		return records <= 0
	}
	var reach int64
	for _, s := range l.before {
		for _, c := range s.chunks {
			reach = max(reach, c.First+c.Records)
		}
	}
	return reach >= records
}

// Bad reports whether an earlier run found an input file damaged.
func (l *Log) Bad(file int) bool { return l != nil && l.bad[file] }

// MayChange reports whether an input file may differ from what earlier runs found: because it was
// damaged, or because a damaged file before it stopped the job. Who repairs one file often
// repairs others, too.
func (l *Log) MayChange(file int) bool {
	return l.Bad(file) || l != nil && l.stopped != nil && file > *l.stopped.Damaged
}

// add appends a line, unless the log has it.
func (l *Log) add(one loggedChunk) error {
	if l == nil {
		return nil
	}
	if one.Damaged != nil {
		if l.bad[*one.Damaged] && !one.Stops {
			return nil
		}
	} else if one.End != nil {
		if end := l.section(one.Section).end; end != nil && *end == *one.End {
			return nil
		}
	} else if s := l.section(one.Section); one.Index < len(s.chunks) && s.chunks[one.Index] == one {
		return nil
	}
	return l.write(one)
}

// write appends a line.
func (l *Log) write(one loggedChunk) error {
	line, err := chunk.AppendLine(nil, one)
	if err != nil {
		return err
	}
	_, err = l.file.Write(line)
	return logFault(err)
}

// sync makes the log durable.
func (l *Log) sync() error {
	if l == nil {
		return nil
	}
	return logFault(l.file.Sync())
}

func logFault(err error) error {
	if err == nil {
		return nil
	}
	return fault.JobFiles.New("write the log of chunks: %w", err)
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
