package commit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// The journal survives a crash. It is an append-only file with one line per committed fact;
// docs/internals/journal-format.md describes the format.
//
//	gpurun-journal 1
//	8f1c09ab {"segment":{…}}
//	03d2b6f0 {"durable":{…}}
//
// A line is a checksum, a space and a JSON value. Everything before a durable line was synced
// before that line was written, so a bad line followed by a durable line is damage and is
// refused. After the last durable line nothing is guaranteed: the journal ends before the
// first bad line, and everything from there on is ignored.

// JournalVersion is the version of the format.
const JournalVersion = 1

const journalMagic = "gpurun-journal "

// journalHeader is the first line of a journal.
func journalHeader() []byte { return fmt.Appendf(nil, "%s%d\n", journalMagic, JournalVersion) }

// CorruptError reports a damaged journal.
type CorruptError struct {
	Path   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal %s is damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
}

// Journal is an open journal.
type Journal struct {
	file *os.File
	path string

	mu     sync.Mutex
	size   int64 // of whole lines
	failed error // set once the file's content is uncertain
	lost   int   // intact lines that were discarded, see Lost
}

// Lost returns how many intact lines followed a damaged one when the journal was opened.
// They were discarded with it, and the work they record is repeated.
func (j *Journal) Lost() int { return j.lost }

// CreateJournal durably creates a new journal.
func CreateJournal(path string) (*Journal, error) { return newJournal(path, journalHeader()) }

// newJournal durably creates a journal with these lines. It atomically replaces an older
// one.
func newJournal(path string, data []byte) (*Journal, error) {
	if err := files.WriteDurably(path, data, files.PrivateMode); err != nil {
		return nil, fault.JobFiles.New("create journal: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fault.JobFiles.New("create journal: %w", err)
	}
	j := &Journal{file: file, path: path, size: int64(len(data))}
	if err := j.cut(); err != nil {
		file.Close()
		return nil, err
	}
	return j, nil
}

// rewrite replaces all lines.
func (j *Journal) rewrite(entries []Entry) error {
	data := journalHeader()
	for _, e := range entries {
		var err error
		if data, err = chunk.AppendLine(data, e); err != nil {
			return err
		}
	}
	next, err := newJournal(j.path, data)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.file.Close()
	j.file, j.size = next.file, next.size
	return nil
}

// OpenJournal opens a journal to append to it. It truncates a line that was being written
// when the last writer died. A damaged journal is a Conflict that wraps a *CorruptError.
func OpenJournal(path string) (*Journal, []Entry, error) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, fault.JobDamaged.New("open journal: %w", err)
	}
	j := &Journal{file: file, path: path}
	var entries []Entry
	content, err := readJournal(file, path)
	if err == nil {
		entries, j.size, j.lost = content.entries, content.size, content.lost
		err = j.cut()
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return j, entries, nil
}

// ReadJournal returns the entries of a journal that another process may be writing.
func ReadJournal(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.FolderDamaged.New("open journal: %w", err)
	}
	defer file.Close()
	content, err := readJournal(file, path)
	return content.entries, err
}

// cut truncates the journal after its last complete line and seeks there.
func (j *Journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return fault.JobFiles.New("repair journal: %w", err)
	}
	if _, err := j.file.Seek(j.size, io.SeekStart); err != nil {
		return fault.JobFiles.New("repair journal: %w", err)
	}
	return nil
}

// journalContent is what a journal holds.
type journalContent struct {
	entries []Entry
	size    int64 // of their lines
	lost    int   // how many intact lines follow the first bad one
}

func readJournal(r io.Reader, path string) (c journalContent, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return c, fault.JobFiles.Of(fault.Conflict, "read journal: %w", err)
	}
	corrupt := func(offset int, format string, args ...any) error {
		return fault.JobDamaged.New("%w", &CorruptError{Path: path, Offset: int64(offset), Reason: fmt.Sprintf(format, args...)})
	}
	header, rest, ok := bytes.Cut(data, newline)
	version, isJournal := bytes.CutPrefix(header, []byte(journalMagic))
	switch {
	case !ok || !isJournal:
		return c, corrupt(0, "it has no journal header")
	case string(version) != strconv.Itoa(JournalVersion):
		return c, corrupt(len(journalMagic), "it has version %q, but this gpurun writes version %d", version, JournalVersion)
	}
	offset := len(header) + 1
	for len(rest) > 0 {
		line, after, whole := bytes.Cut(rest, newline)
		entry, err := parseEntry(line)
		if err != nil || !whole {
			durable := false
			if c.lost, durable = goodLines(rest[1:]); durable {
				return journalContent{}, corrupt(offset, "%v", err)
			}
			break
		}
		c.entries = append(c.entries, entry)
		offset += len(line) + 1
		rest = after
	}
	c.size = int64(offset)
	return c, nil
}

// Append writes an entry, unless there is no journal. The entry survives the death of this process, but is not on disk
// before Sync. If only part of the line could be written, it is removed again: followed by
// another line it would count as damage.
func (j *Journal) Append(e Entry) error {
	if j == nil {
		return nil
	}
	line, err := chunk.AppendLine(nil, e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	if _, err := j.file.Write(line); err != nil {
		err = fault.JobFiles.New("write journal: %w", err)
		if j.cut() != nil {
			j.failed = err
		}
		return err
	}
	j.size += int64(len(line))
	return nil
}

// Sync makes everything appended durable. After a failure it never tries again: the kernel
// drops pages that it could not write, so the next sync would succeed without them.
func (j *Journal) Sync() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	j.mu.Unlock() // others may append meanwhile
	err := j.file.Sync()
	j.mu.Lock()
	if err != nil && j.failed == nil {
		j.failed = fault.JobFiles.New("sync journal: %w", err)
	}
	return j.failed
}

// Close closes the file. A stream has no journal: nil.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}
