package amend

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// A file of failed records starts with a byte order mark and ends its lines with CRLF.
// Readers remove one of each, so a record may itself start with a mark or end with a
// carriage return.
var (
	failedStart = []byte("\ufeff")
	failedEnd   = []byte("\r\n")
)

// CopyFailed writes the failed records to a file as they were in the input, one per line,
// and returns how many there are. Records that already had an _error in the input are not
// included. It takes the records from the job's output, where they are kept with their
// marks, because the input may have been a stream, or may have been deleted or changed.
func (r Retried) CopyFailed(path string) (count int64, err error) {
	file, err := files.Create(path, files.PrivateMode)
	if err != nil {
		return 0, fault.JobFiles.New("create retry input: %w", err)
	}
	defer file.Close()
	kept, err := r.openKept()
	if err != nil {
		return 0, err
	}
	defer kept.close()
	out := bufio.NewWriterSize(file, 1<<20)
	_, _ = out.Write(failedStart)
	err = record.ReadFailures(r.Failures, func(f record.Failure) error {
		line, err := kept.line(f)
		if err != nil || f.Kind == fault.Upstream {
			return err
		}
		count++
		err = record.WriteUnmarked(out, line, f)
		if errors.Is(err, record.ErrNotMarked) {
			return kept.changed(f)
		}
		if err == nil {
			_, err = out.Write(failedEnd)
		}
		return retryInput(err)
	})
	if err == nil {
		err = kept.ended()
	}
	if err == nil {
		err = retryInput(cmp.Or(out.Flush(), file.Sync()))
	}
	return count, err
}

// CheckFailed reads Failed and returns a fault if it is not what CopyFailed writes.
func (r Retried) CheckFailed() error {
	m := &merger{Retried: r}
	defer m.close()
	if err := m.openFailed(); err != nil {
		return err
	}
	return record.ReadFailures(r.Failures, func(f record.Failure) error {
		if f.Kind == fault.Upstream {
			return nil
		}
		_, err := m.record(f)
		return err
	})
}

func retryInput(err error) error {
	if err == nil {
		return nil
	}
	return fault.JobFiles.New("create retry input: %w", err)
}

// keptLines are the lines of failed records where a job keeps them: in its results or in a
// separate file.
type keptLines struct {
	paths  []string // of the results or the separate file
	ends   []int64  // where the parts end in the results
	number int      // of the current file
	format encode.Format
	apart  bool
	lines  *oldLines
}

func (r Retried) openKept() (*keptLines, error) {
	k := &keptLines{format: r.Format, apart: r.Errors != ""}
	if k.apart {
		k.paths, k.format = []string{r.Errors}, encode.Lines()
		return k, k.open()
	}
	var end int64
	for _, part := range r.parts() {
		end += part.Length()
		k.paths, k.ends = append(k.paths, filepath.Join(r.Output, part.Name)), append(k.ends, end)
	}
	return k, k.open()
}

func (k *keptLines) open() (err error) {
	k.close()
	k.lines, err = openLines(k.paths[k.number], k.format)
	return err
}

// line returns the line of a failed record, without its newline. It is valid until the next
// call. Records must be requested in order.
func (k *keptLines) line(f record.Failure) ([]byte, error) {
	to := int64(-1)
	if !k.apart {
		start := int64(0)
		for k.number < len(k.ends)-1 && f.At >= k.ends[k.number] {
			k.number++
			if err := k.open(); err != nil {
				return nil, err
			}
		}
		if k.number > 0 {
			start = k.ends[k.number-1]
		}
		if err := k.lines.skip(f.At - start); err != nil {
			return nil, err
		}
		to = f.At + f.Size - start
	}
	line, err := k.lines.line(to)
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	// A record with a mark in the input is kept unchanged, so its checksum can be compared
	// here. The others are compared when their mark is removed.
	if err != nil || !whole || f.Kind == fault.Upstream && chunk.Checksum(text) != f.CRC32C {
		return nil, k.changed(f)
	}
	return text, nil
}

// ended returns a fault if the file of failed records has more lines.
func (k *keptLines) ended() error {
	if !k.apart {
		return nil
	}
	if _, err := k.lines.lines.ReadByte(); !errors.Is(err, io.EOF) {
		return k.lines.changed("it has more lines than failed records")
	}
	return nil
}

func (k *keptLines) changed(f record.Failure) error {
	return k.lines.changed("the failed record of line %d is not where the job wrote it", f.Line)
}

func (k *keptLines) close() {
	if k.lines != nil {
		k.lines.close()
	}
}
