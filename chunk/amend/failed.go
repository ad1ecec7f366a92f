package amend

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"os"
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
		return 0, fault.New(fault.Storage, "create retry input: %w", err)
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
	return fault.New(fault.Storage, "create retry input: %w", err)
}

// keptLines are the lines of failed records where a job keeps them: in its results or in a
// separate file. They are mapped, because a record may have failed for being too long to
// read.
type keptLines struct {
	paths  []string // of the results or the separate file
	sizes  []int64  // of the parts, if any
	number int      // of the current file
	start  int64    // offset of the current file in the results
	file   *os.File
	mapped files.Mapping

	apart *bufio.Reader // the separate file, read up to at
	at    int64

	format  encode.Format
	decoded *decodedFile // the current file, if it is encoded
}

func (r Retried) openKept() (*keptLines, error) {
	k := &keptLines{paths: []string{r.Output}, format: r.Format}
	switch {
	case r.Errors != "":
		k.paths[0], k.format = r.Errors, encode.Lines()
	case r.Parts != nil:
		k.paths = nil
		for _, part := range r.Parts {
			k.paths, k.sizes = append(k.paths, filepath.Join(r.Output, part.Name)), append(k.sizes, lengthOf(part, r.Format))
		}
	}
	if len(k.paths) == 0 {
		return k, nil // no parts, so no failed records
	}
	if err := k.open(); err != nil {
		return nil, err
	}
	if r.Errors != "" {
		k.apart = bufio.NewReaderSize(k.file, 1<<20)
	}
	return k, nil
}

func (k *keptLines) open() (err error) {
	if k.file, err = os.Open(k.paths[k.number]); err != nil {
		return fault.New(fault.Usage, "open failed records: %w", err)
	}
	if k.format.Encodes() {
		k.decoded.close()
		if k.decoded, err = decodeFile(k.file, k.format); err != nil {
			return k.unreadable(err)
		}
	}
	return nil
}

func (k *keptLines) unreadable(err error) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: %w", k.paths[k.number], err)
}

// line returns the line of a failed record, without its newline. It is valid until the next
// call. Records must be requested in order.
func (k *keptLines) line(f record.Failure) (line []byte, err error) {
	k.mapped.Unmap()
	k.mapped = files.Mapping{}
	var at int64
	size := f.Size
	if k.apart != nil {
		if at, size, err = k.nextApart(); err != nil {
			return nil, k.changed(f)
		}
	} else if at, err = k.reach(f); err != nil {
		return nil, err
	}
	if k.decoded != nil {
		if k.mapped, err = k.decoded.read(at, size); err != nil {
			return nil, k.unreadable(err)
		}
		return k.checked(f, size)
	}
	if info, err := k.file.Stat(); err != nil || at < 0 || size < 1 || at+size > info.Size() {
		return nil, k.changed(f)
	}
	if k.mapped, err = files.Map(k.file, at, size); err != nil {
		return nil, fault.New(fault.Storage, "read failed records: %w", err)
	}
	return k.checked(f, size)
}

// checked returns the mapped line if it is a whole one.
func (k *keptLines) checked(f record.Failure, size int64) ([]byte, error) {
	line := k.mapped.Data[:size-1]
	// A record with a mark in the input is kept unchanged, so its checksum can be compared
	// here. The others are compared when their mark is removed.
	passed := f.Kind == fault.Upstream
	if k.mapped.Data[size-1] != '\n' || passed && chunk.Checksum(line) != f.CRC32C {
		return nil, k.changed(f)
	}
	return line, nil
}

// nextApart returns the position of the next line in the file of failed records.
func (k *keptLines) nextApart() (at, size int64, err error) {
	at = k.at
	for {
		piece, err := k.apart.ReadSlice('\n')
		k.at += int64(len(piece))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return at, k.at - at, err
		}
	}
}

// reach opens the results file that contains the record and returns the record's offset in
// it.
func (k *keptLines) reach(f record.Failure) (int64, error) {
	for k.number < len(k.sizes) && f.At-k.start >= k.sizes[k.number] {
		if k.number == len(k.sizes)-1 {
			return 0, k.changed(f)
		}
		k.start += k.sizes[k.number]
		k.number++
		k.file.Close()
		if err := k.open(); err != nil {
			return 0, err
		}
	}
	if k.file == nil {
		return 0, fault.New(fault.Conflict, "the output has no part with the failed record of line %d", f.Line)
	}
	return f.At - k.start, nil
}

// ended returns a fault if the file of failed records has more lines.
func (k *keptLines) ended() error {
	if k.apart == nil {
		return nil
	}
	if _, err := k.apart.ReadByte(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Conflict, "%s was changed since the job wrote it: it has more lines than failed records", k.paths[0])
	}
	return nil
}

func (k *keptLines) changed(f record.Failure) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: the failed record of line %d is not where the job wrote it",
		k.paths[k.number], f.Line)
}

func (k *keptLines) close() {
	k.mapped.Unmap()
	k.decoded.close()
	if k.file != nil {
		k.file.Close()
	}
}
