package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// ChunkLog stores how sections were split into chunks, with a checksum of each, so that a
// resumed job can compare what it reads again and split it the same way. As in the journal,
// a line is a checksum, a space and a JSON value. A chunk is in the log before it is
// computed. The log is not synced, so lines may be missing at its end.
type ChunkLog struct {
	file   *os.File
	before map[int]*loggedSection // of earlier runs
}

// loggedChunk is one line: a chunk, or the end of a section.
type loggedChunk struct {
	// Section and Index are the number of the section, and of the chunk in it, from 0.
	Section int `json:"section"`
	Index   int `json:"index"`
	// First is the number of the first record in the whole input, At that in the section.
	First   int64 `json:"first"`
	At      int64 `json:"at"`
	Records int64 `json:"records"`
	// Line is the number of the first line in the section.
	Line int64 `json:"line"`
	chunk.FileSum
	// Last: the chunk ended with the section. Open: without a line feed.
	Last bool `json:"last,omitempty"`
	Open bool `json:"open,omitempty"`

	End *sectionEnd `json:"end,omitempty"`
}

// same reports whether two chunks of a section hold the same lines.
func (c loggedChunk) same(d loggedChunk) bool {
	return c.FileSum == d.FileSum && c.Records == d.Records && c.At == d.At && c.Line == d.Line
}

// sectionEnd is what a section turned out to have.
type sectionEnd struct {
	Section int `json:"section"`
	// Seen is the number of its records, Records that of those in chunks.
	Seen    int64 `json:"seen"`
	Records int64 `json:"records"`
	Blank   int64 `json:"blank"`
	// Bad is why it could not be read any further.
	Bad string `json:"bad,omitempty"`
}

// loggedSection is what the log says about a section.
type loggedSection struct {
	chunks []loggedChunk
	end    *sectionEnd
}

// OpenChunkLog opens or creates the log and reads it up to the first damaged line.
func OpenChunkLog(path string) (*ChunkLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, files.PrivateMode)
	if err != nil {
		return nil, fault.New(fault.Storage, "open the log of chunks: %w", err)
	}
	l := &ChunkLog{file: file, before: make(map[int]*loggedSection)}
	data, err := io.ReadAll(file)
	if err == nil {
		good := l.parse(data)
		if err = file.Truncate(good); err == nil {
			_, err = file.Seek(good, io.SeekStart)
		}
	}
	if err != nil {
		file.Close()
		return nil, fault.New(fault.Storage, "read the log of chunks: %w", err)
	}
	return l, nil
}

// ReadChunkLog returns a log that no process writes to, and that cannot be written; an empty
// one if there is none.
func ReadChunkLog(path string) (*ChunkLog, error) {
	l := &ChunkLog{before: make(map[int]*loggedSection)}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Storage, "read the log of chunks: %w", err)
	}
	l.parse(data)
	return l, nil
}

// parse reads lines and returns where the first damaged one is.
func (l *ChunkLog) parse(data []byte) (good int64) {
	for {
		line, rest, whole := bytes.Cut(data, newline)
		sum, payload, _ := bytes.Cut(line, []byte(" "))
		var one loggedChunk
		if !whole || string(sum) != chunk.Checksum(payload).String() || json.Unmarshal(payload, &one) != nil || l.take(one) != nil {
			return good
		}
		good += int64(len(line)) + 1
		data = rest
	}
}

// take adds a line. A chunk with the number of an earlier one replaces it and what follows
// it: the stream ended there in one run, but not in the next.
func (l *ChunkLog) take(one loggedChunk) error {
	number := one.Section
	if one.End != nil {
		number = one.End.Section
	}
	s := l.before[number]
	if s == nil {
		s = &loggedSection{}
		l.before[number] = s
	}
	switch {
	case one.End != nil:
		s.end = one.End
		return nil
	case one.Index < 0 || one.Index > len(s.chunks) || one.Records <= 0 || one.Bytes <= 0:
		return errors.New("a chunk out of order")
	}
	s.chunks, s.end = append(s.chunks[:one.Index], one), nil
	return nil
}

// section returns what earlier runs have logged about a section.
func (l *ChunkLog) section(number int) loggedSection {
	if l == nil || l.before[number] == nil {
		return loggedSection{}
	}
	return *l.before[number]
}

// Covers reports whether the log describes all of the first records.
func (l *ChunkLog) Covers(records int64) bool {
	var reach int64
	for _, s := range l.before {
		for _, c := range s.chunks {
			reach = max(reach, c.First+c.Records)
		}
	}
	return reach >= records
}

// Bad reports whether an earlier run found a section damaged.
func (l *ChunkLog) Bad(number int) bool {
	end := l.section(number).end
	return end != nil && end.Bad != ""
}

// Whole reports whether an earlier run has read a section to its end.
func (l *ChunkLog) Whole(number int) bool { return l.section(number).end != nil }

// add appends a line, unless the log has it.
func (l *ChunkLog) add(one loggedChunk) error {
	if l == nil {
		return nil
	}
	if one.End != nil {
		if end := l.section(one.End.Section).end; end != nil && *end == *one.End {
			return nil
		}
	} else if s := l.section(one.Section); one.Index < len(s.chunks) && s.chunks[one.Index] == one {
		return nil
	}
	payload, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(fmt.Appendf(nil, "%s %s\n", chunk.Checksum(payload), payload)); err != nil {
		return fault.New(fault.Storage, "write the log of chunks: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *ChunkLog) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}
