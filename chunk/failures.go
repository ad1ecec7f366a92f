package chunk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/gpurun/gpurun/internal/fault"
)

// A line of failures.jsonl begins with a number of fixed width: where the record
// stands in the results. In a part it counts from the part's beginning; when the
// part is appended, what stands before it is added, and no byte moves.
//
//	{"at":             120,"size":96,"record":7,…}
const (
	atPrefix = `{"at":`
	atWidth  = 16
)

// appendLine appends the failure as a line.
func (f Failure) appendLine(dst []byte) ([]byte, error) {
	rest, err := json.Marshal(f)
	if err != nil {
		return dst, err
	}
	dst = fmt.Appendf(dst, "%s%*d,", atPrefix, atWidth, f.At)
	return append(append(dst, rest[1:]...), '\n'), nil
}

// parseFailure reads a line.
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

// moveFailures copies lines, with base added to where their records stand.
func moveFailures(to io.Writer, r io.Reader, base int64) (written int64, err error) {
	in, w := bufio.NewReaderSize(r, 64<<10), bufio.NewWriterSize(to, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return written, w.Flush()
		}
		if err != nil {
			return written, err
		}
		if len(line) < len(atPrefix)+atWidth || !bytes.HasPrefix(line, []byte(atPrefix)) {
			return written, errors.New("a line of a part's failures makes no sense")
		}
		number := line[len(atPrefix) : len(atPrefix)+atWidth]
		at, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
		if err == nil && string(number) != fmt.Sprintf("%*d", atWidth, at) {
			err = errors.New("a number in a part's failures is not as it was written")
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

// ReadFailures calls each for every line of a failures.jsonl, in order.
func ReadFailures(path string, each func(Failure) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fault.New(fault.Conflict, "read failures: %w", err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			f, err := parseFailure(line)
			if err != nil {
				return fault.New(fault.Conflict, "%s is damaged in line %d: %w", path, number, err)
			}
			if err := each(f); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.New(fault.Storage, "read failures: %w", err)
		}
	}
}
