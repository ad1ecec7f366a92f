package input

import (
	"errors"
	"slices"

	"github.com/gpurun/gpurun/chunk"
)

// ChunkLog stores how sections were split into chunks, with a checksum of each, so that a
// resumed job can compare what it reads again and split it the same way. A chunk is in the
// log before it is computed.
type ChunkLog struct {
	log    *lineLog[loggedChunk]
	before map[int]*loggedSection // of earlier runs
	bad    map[int]bool           // damaged files
	// stopped is the damage that stopped the job, nil if the job has read later sections since.
	stopped *loggedChunk
}

// whatChunks is how messages call the log.
const whatChunks = "the log of chunks"

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
	return c.FileSum == d.FileSum && c.Records == d.Records && c.At == d.At && c.Line == d.Line
}

// sectionEnd is what a section turned out to have.
type sectionEnd struct {
	Section int `json:"section"`
	// Seen is the number of its records, Records that of those in chunks.
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

func newChunkLog() *ChunkLog {
	return &ChunkLog{before: make(map[int]*loggedSection), bad: make(map[int]bool)}
}

// OpenChunkLog opens or creates the log and reads it up to the first damaged line.
func OpenChunkLog(path string) (_ *ChunkLog, err error) {
	l := newChunkLog()
	if l.log, err = openLines(path, whatChunks, l.take); err != nil {
		return nil, err
	}
	return l, nil
}

// ReadChunkLog returns a log that no process writes to, and that cannot be written; an empty
// one if there is none.
func ReadChunkLog(path string) (*ChunkLog, error) {
	l := newChunkLog()
	return l, readLines(path, whatChunks, l.take)
}

// take adds a line. A chunk with the number of an earlier one replaces it and what follows
// it: the stream ended there in one run, but not in the next.
func (l *ChunkLog) take(one loggedChunk) error {
	number := one.Section
	if one.Damaged != nil {
		l.bad[*one.Damaged] = true
		if one.Stops && (l.stopped == nil || *one.Damaged < *l.stopped.Damaged) {
			l.stopped = &one
		}
		return nil
	}
	if one.Forget != nil {
		l.forget(*one.Forget)
		return nil
	}
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
	if l.stopped != nil && one.Section > l.stopped.Section {
		l.stopped = nil
	}
	return nil
}

// forget drops the chunks from a record on.
func (l *ChunkLog) forget(first int64) {
	for _, s := range l.before {
		if i := slices.IndexFunc(s.chunks, func(c loggedChunk) bool { return c.First >= first }); i >= 0 {
			s.chunks, s.end = s.chunks[:i], nil
		}
	}
}

// Forget drops the chunks from a record on: the files that follow are no longer what earlier
// runs have read.
func (l *ChunkLog) Forget(first int64) error {
	l.forget(first)
	return l.log.add(loggedChunk{Forget: &first})
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

// Bad reports whether an earlier run found an input file damaged.
func (l *ChunkLog) Bad(file int) bool { return l != nil && l.bad[file] }

// MayChange reports whether an input file may differ from what earlier runs found: because it was
// damaged, or because a damaged file before it stopped the job. Who repairs one file often
// repairs others, too.
func (l *ChunkLog) MayChange(file int) bool {
	return l.Bad(file) || l != nil && l.stopped != nil && file > *l.stopped.Damaged
}

// add appends a line, unless the log has it.
func (l *ChunkLog) add(one loggedChunk) error {
	if l == nil {
		return nil
	}
	if one.Damaged != nil {
		if l.bad[*one.Damaged] && !one.Stops {
			return nil
		}
	} else if one.End != nil {
		if end := l.section(one.End.Section).end; end != nil && *end == *one.End {
			return nil
		}
	} else if s := l.section(one.Section); one.Index < len(s.chunks) && s.chunks[one.Index] == one {
		return nil
	}
	return l.log.add(one)
}

// Close closes the file.
func (l *ChunkLog) Close() error {
	if l == nil {
		return nil
	}
	return l.log.close()
}
