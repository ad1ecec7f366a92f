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

// SumsLog stores the sums of an input that is split while it is read, so that a resumed job
// can compare it. As in the journal, a line is a checksum, a space and a JSON value. The
// log is not synced, so sums may be missing at its end.
type SumsLog struct {
	file    *os.File
	written Sums
}

// sumLine is one stretch.
type sumLine struct {
	Offset int64 `json:"offset"`
	chunk.FileSum
}

// OpenSumsLog opens or creates the log and returns its sums, up to the first damaged line.
func OpenSumsLog(path string) (*SumsLog, Sums, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, files.PrivateMode)
	if err != nil {
		return nil, Sums{}, fault.New(fault.Storage, "open input checksums: %w", err)
	}
	l := &SumsLog{file: file}
	data, err := io.ReadAll(file)
	if err == nil {
		var good int64
		l.written, good = parseSums(data)
		if err = file.Truncate(good); err == nil {
			_, err = file.Seek(good, io.SeekStart)
		}
	}
	if err != nil {
		file.Close()
		return nil, Sums{}, fault.New(fault.Storage, "read input checksums: %w", err)
	}
	return l, l.written, nil
}

func parseSums(data []byte) (s Sums, good int64) {
	for {
		line, rest, whole := bytes.Cut(data, newline)
		sum, payload, _ := bytes.Cut(line, []byte(" "))
		var one sumLine
		if !whole || string(sum) != chunk.Checksum(payload).String() || json.Unmarshal(payload, &one) != nil {
			return s, good
		}
		if len(s.Stretches) == 0 {
			s.From = one.Offset
		}
		if one.Offset != s.end() {
			return s, good
		}
		s.Stretches = append(s.Stretches, one.FileSum)
		good += int64(len(line)) + 1
		data = rest
	}
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
	var lines []byte
	at := l.written.end()
	for _, stretch := range s.Stretches[len(l.written.Stretches):] {
		payload, err := json.Marshal(sumLine{at, stretch})
		if err != nil {
			return err
		}
		lines = fmt.Appendf(lines, "%s %s\n", chunk.Checksum(payload), payload)
		at += stretch.Bytes
	}
	if _, err := l.file.Write(lines); err != nil {
		return fault.New(fault.Storage, "write input checksums: %w", err)
	}
	l.written = s
	return nil
}

// Close closes the file.
func (l *SumsLog) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}

// ReadSumsLog returns the sums of a log that no process writes to; none if there is no log.
func ReadSumsLog(path string) (Sums, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Sums{}, nil
	}
	if err != nil {
		return Sums{}, fault.New(fault.Storage, "read input checksums: %w", err)
	}
	s, _ := parseSums(data)
	return s, nil
}
