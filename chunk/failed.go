package chunk

import (
	"bufio"
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// A file of failed records, for another job to read, begins with a mark of its
// encoding, and its lines end as in DOS: readers take one of each away, and whatever
// a record begins or ends with is its own.
var (
	failedStart = []byte("\ufeff")
	failedEnd   = []byte("\r\n")
)

// CopyFailed writes the failed records to a file, as they came in, one a line, and
// returns how many there are; those that came in with an _error are not among them.
// They are taken from where they are kept, marked, and not from the input: that was a
// stream, or is gone, or another by now.
func (r Retried) CopyFailed(path string) (count int64, err error) {
	file, err := createNew(path, PrivateMode)
	if err != nil {
		return 0, fault.New(fault.Storage, "make retry input: %w", err)
	}
	defer file.Close()
	kept, err := r.openKept()
	if err != nil {
		return 0, err
	}
	defer kept.close()
	out := bufio.NewWriterSize(file, 1<<20)
	_, _ = out.Write(failedStart)
	err = ReadFailures(r.Failures, func(f Failure) error {
		line, err := kept.line(f)
		if err != nil || f.Kind == fault.Upstream {
			return err
		}
		count++
		err = writeUnmarked(out, line, f)
		if errors.Is(err, errNotMarked) {
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

// CheckFailed reads Failed, and returns a fault if it is not what CopyFailed makes.
func (r Retried) CheckFailed() error {
	m := &merger{Retried: r}
	defer m.close()
	if err := m.openFailed(); err != nil {
		return err
	}
	return ReadFailures(r.Failures, func(f Failure) error {
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
	return fault.New(fault.Storage, "make retry input: %w", err)
}

// keptLines are the lines of failed records where a job keeps them: in its results,
// or in a file of their own. They are mapped: a record may have failed because it is
// too long to be read.
type keptLines struct {
	paths  []string // of the results, or of the file of their own
	sizes  []int64  // of the parts, if there are some
	number int      // of the file at hand
	start  int64    // where it begins in the results
	file   *os.File
	mapped mapping

	apart *bufio.Reader // the file of their own, up to at
	at    int64
}

func (r Retried) openKept() (*keptLines, error) {
	k := &keptLines{paths: []string{r.Output}}
	switch {
	case r.Errors != "":
		k.paths[0] = r.Errors
	case r.Parts != nil:
		k.paths = nil
		for _, part := range r.Parts {
			k.paths, k.sizes = append(k.paths, filepath.Join(r.Output, part.Name)), append(k.sizes, part.Bytes)
		}
	}
	if len(k.paths) == 0 {
		return k, nil // no part, no failed record
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
	return nil
}

// line is that of a failed record, without its end, until the next one is asked for.
// They must be asked for in order.
func (k *keptLines) line(f Failure) (line []byte, err error) {
	k.mapped.unmap()
	k.mapped = mapping{}
	var at int64
	size := f.Size
	if k.apart != nil {
		if at, size, err = k.nextApart(); err != nil {
			return nil, k.changed(f)
		}
	} else if at, err = k.reach(f); err != nil {
		return nil, err
	}
	if info, err := k.file.Stat(); err != nil || at < 0 || size < 1 || at+size > info.Size() {
		return nil, k.changed(f)
	}
	if k.mapped, err = mapFile(k.file, at, size); err != nil {
		return nil, fault.New(fault.Storage, "read failed records: %w", err)
	}
	line = k.mapped.data[:size-1]
	// One that came in with a mark is kept as it was; the others are compared when the
	// mark is taken off.
	passed := f.Kind == fault.Upstream
	if k.mapped.data[size-1] != '\n' || passed && crc32.Checksum(line, castagnoli) != uint32(f.CRC32C) {
		return nil, k.changed(f)
	}
	return line, nil
}

// nextApart is where the next line of the file of failed records stands.
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

// reach opens the file of the results that has the record, and says where in it.
func (k *keptLines) reach(f Failure) (int64, error) {
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
		return 0, fault.New(fault.Conflict, "the output has no part for the failed record of line %d", f.Line)
	}
	return f.At - k.start, nil
}

// ended is the fault of a file of failed records that has more of them.
func (k *keptLines) ended() error {
	if k.apart == nil {
		return nil
	}
	if _, err := k.apart.ReadByte(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Conflict, "%s was changed since the job wrote it: it has more lines than records failed", k.paths[0])
	}
	return nil
}

func (k *keptLines) changed(f Failure) error {
	return fault.New(fault.Conflict, "%s was changed since the job wrote it: the failed record of line %d is not where it was",
		k.paths[k.number], f.Line)
}

func (k *keptLines) close() {
	k.mapped.unmap()
	if k.file != nil {
		k.file.Close()
	}
}
