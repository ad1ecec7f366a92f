package input

import (
	"errors"

	"github.com/gpurun/gpurun/chunk"
)

// SumsLog stores the sums of an input that is split while it is read, so that a resumed job
// can compare it.
type SumsLog struct {
	log     *lineLog[sumLine]
	written Sums
}

// sumLine is one stretch.
type sumLine struct {
	Offset int64 `json:"offset"`
	chunk.FileSum
}

// whatSums is how messages call the log.
const whatSums = "input checksums"

// OpenSumsLog opens or creates the log and returns its sums, up to the first damaged line.
func OpenSumsLog(path string) (*SumsLog, Sums, error) {
	l := &SumsLog{}
	var err error
	if l.log, err = openLines(path, whatSums, l.written.take); err != nil {
		return nil, Sums{}, err
	}
	return l, l.written, nil
}

// take adds a stretch that must follow the others.
func (s *Sums) take(one sumLine) error {
	if len(s.Stretches) == 0 {
		s.From = one.Offset
	}
	if one.Offset != s.end() {
		return errors.New("a stretch out of order")
	}
	s.Stretches = append(s.Stretches, one.FileSum)
	return nil
}

// Append writes the stretches of s that the log does not have yet. A file that is split the
// same way again has the same stretches, so nothing is written until s is longer.
func (l *SumsLog) Append(s Sums) error {
	if len(s.Stretches) <= len(l.written.Stretches) {
		return nil
	}
	if len(l.written.Stretches) == 0 {
		l.written.From = s.From
	}
	var lines []sumLine
	at := l.written.end()
	for _, stretch := range s.Stretches[len(l.written.Stretches):] {
		lines = append(lines, sumLine{at, stretch})
		at += stretch.Bytes
	}
	if err := l.log.add(lines...); err != nil {
		return err
	}
	l.written = s
	return nil
}

// Close closes the file.
func (l *SumsLog) Close() error {
	if l == nil {
		return nil
	}
	return l.log.close()
}

// ReadSumsLog returns the sums of a log that no process writes to; none if there is no log.
func ReadSumsLog(path string) (s Sums, err error) {
	err = readLines(path, whatSums, s.take)
	return s, err
}
