package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// Failure is one line of failures.jsonl: details on a failed record beyond its mark.
type Failure struct {
	// At is the record's position in the results, or the position it would have had if it
	// had not failed. Size is how many bytes of the results it takes: 0 if failed records
	// go to a separate file.
	At   int64 `json:"-"`
	Size int64 `json:"size"`

	Record int64  `json:"record"`
	Line   int64  `json:"line"`
	File   string `json:"file"`
	// Source is the input file that the mark names. Rows: Line is the number of a row.
	Source  string     `json:"source,omitempty"`
	Rows    bool       `json:"rows,omitempty"`
	Offset  int64      `json:"offset"`
	Length  int64      `json:"length"`
	CRC32C  chunk.CRC  `json:"crc32c"`
	Kind    fault.Kind `json:"kind"`
	Message string     `json:"message"`
	// Code and Value identify the cause, and what its advice needs.
	Code   fault.Code `json:"code,omitempty"`
	Value  string     `json:"value,omitempty"`
	Step   string     `json:"step,omitempty"`
	Detail string     `json:"detail,omitempty"`
	Device string     `json:"device,omitempty"`
	// Replaced is the _error that the record had in the input, if another has replaced it.
	Replaced string `json:"replaced,omitempty"`
}

// A line of failures.jsonl starts with a number of fixed width: the position of the record
// in the results. In a part it is relative to the start of the part. When the part is
// appended, the part's position is added in place, without moving any byte.
//
//	{"at":             120,"size":96,"record":7,…}
const (
	atPrefix = `{"at":`
	atWidth  = 16
)

// AppendLine appends the failure as a line.
func (f Failure) AppendLine(dst []byte) ([]byte, error) {
	rest, err := json.Marshal(f)
	if err != nil {
		return dst, err
	}
	dst = fmt.Appendf(dst, "%s%*d,", atPrefix, atWidth, f.At)
	return append(append(dst, rest[1:]...), '\n'), nil
}

// parseFailure parses a line.
func parseFailure(line []byte) (Failure, error) {
	f := struct {
		At int64 `json:"at"`
		*Failure
	}{Failure: new(Failure)}
	if err := json.Unmarshal(line, &f); err != nil {
		return Failure{}, err
	}
	f.Failure.At = f.At
	return *f.Failure, nil
}

// Parts are many and often small, so that their buffers are used again.
var (
	moveReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}
	moveWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}
)

// MoveFailures copies lines and adds base to the positions of their records.
func MoveFailures(to io.Writer, r io.Reader, base int64) (written int64, err error) {
	in, w := moveReaders.Get().(*bufio.Reader), moveWriters.Get().(*bufio.Writer)
	in.Reset(r)
	w.Reset(to)
	defer func() {
		in.Reset(nil)
		w.Reset(nil)
		moveReaders.Put(in)
		moveWriters.Put(w)
	}()
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return written, w.Flush()
		}
		if err != nil {
			return written, err
		}
		if len(line) < len(atPrefix)+atWidth || !bytes.HasPrefix(line, []byte(atPrefix)) {
			return written, errors.New("invalid line in a part's failures")
		}
		number := line[len(atPrefix) : len(atPrefix)+atWidth]
		at, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
		if err == nil && string(number) != fmt.Sprintf("%*d", atWidth, at) {
			err = errors.New("damaged number in a part's failures")
		}
		if err != nil {
			return written, err
		}
		copy(number, fmt.Sprintf("%*d", atWidth, at+base))
		n, err := w.Write(line)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
}

// ReadFailures calls each for every line of a failures.jsonl file, in order.
func ReadFailures(path string, each func(Failure) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fault.JobFiles.Of(fault.Conflict, "read failures: %w", err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			f, err := parseFailure(line)
			if err != nil {
				return fault.FolderDamaged.New("%s is damaged in line %d: %w", path, number, err)
			}
			if err := each(f); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.JobFiles.New("read failures: %w", err)
		}
	}
}
