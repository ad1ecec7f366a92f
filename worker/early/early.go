// Package early keeps answers of a concurrent kernel before they are committed, so that no
// answered record is computed again after a process was killed. A record's answer may have
// to wait for those before it, and a part is committed only at the next checkpoint.
//
// A log is a file next to the parts. Each worker appends every successful answer to its own
// log at once. When it closes a part, it starts a new log with the answers behind the part,
// and renames the old one after the part, with which it is removed. A worker that begins a
// chunk imports the answers that others have logged for its records.
//
// An entry is a header of four numbers in little-endian order, then the verdict, the number
// of nulls, and each line after its length:
//
//	length of what follows the header (4 bytes), its CRC-32C with the record's number (4),
//	the record's number (8)
//
// Failures are not logged: a kernel that failed because a server was down must get its
// records again. Nothing is synced: the log need only survive the death of processes.
package early

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpurun/gpurun/chunk/commit"
)

// Suffix is that of the names of logs; chunk/commit removes them with their parts.
const Suffix = commit.EarlySuffix

// Answer is the answer for one record.
type Answer struct {
	Verdict uint8
	Lines   [][]byte
	Nulls   int64
}

// Log holds the answers of one worker. It is not safe for concurrent use.
type Log struct {
	dir     string
	file    *os.File // nil before the first answer
	size    int64
	entries map[int64]place
}

// place is where an entry is in the file, without its header.
type place struct {
	offset int64
	length int
}

// New returns an empty log in dir. Its file is created with the first answer.
func New(dir string) *Log { return &Log{dir: dir, entries: make(map[int64]place)} }

const (
	headerSize = 16
	// maxEntry limits the size of an entry that a damaged file can make a reader allocate.
	maxEntry = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Has reports whether the log holds the answer for a record.
func (l *Log) Has(number int64) bool {
	_, has := l.entries[number]
	return has
}

// Add appends the answer for a record.
func (l *Log) Add(number int64, a Answer) error {
	body := a.encode(make([]byte, headerSize, headerSize+64))[headerSize:]
	return l.append(number, body)
}

func (l *Log) append(number int64, body []byte) error {
	if l.file == nil {
		if err := l.create(number); err != nil {
			return fmt.Errorf("create early log: %w", err)
		}
	}
	entry := make([]byte, 0, headerSize+len(body))
	entry = binary.LittleEndian.AppendUint32(entry, uint32(len(body)))
	entry = binary.LittleEndian.AppendUint32(entry, sum(number, body))
	entry = binary.LittleEndian.AppendUint64(entry, uint64(number))
	n, err := l.file.Write(append(entry, body...))
	if err != nil {
		_ = l.file.Truncate(l.size)
		return fmt.Errorf("write early log: %w", err)
	}
	l.entries[number] = place{l.size + headerSize, len(body)}
	l.size += int64(n)
	return nil
}

func sum(number int64, body []byte) uint32 {
	head := binary.LittleEndian.AppendUint64(nil, uint64(number))
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// create creates the file. Its lock shows other workers that it is in use.
func (l *Log) create(first int64) error {
	var random [4]byte
	_, _ = rand.Read(random[:])
	path := filepath.Join(l.dir, fmt.Sprintf("%012d-%s%s", first, hex.EncodeToString(random[:]), Suffix))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	l.file = file
	return nil
}

// Get returns the answer for a record that the log has.
func (l *Log) Get(number int64) (Answer, error) {
	at, has := l.entries[number]
	if !has {
		return Answer{}, fmt.Errorf("the early log has no answer for record %d", number)
	}
	body := make([]byte, at.length)
	if _, err := l.file.ReadAt(body, at.offset); err != nil {
		return Answer{}, fmt.Errorf("read early log: %w", err)
	}
	return decode(body)
}

// Rotate ends the log with a part that holds the records before end: answers from end on go
// to a new log, and the file is renamed after the part.
func (l *Log) Rotate(end int64, part string) error {
	if l.file == nil {
		return nil
	}
	next := New(l.dir)
	for number, at := range l.entries {
		if number < end {
			continue
		}
		body := make([]byte, at.length)
		if _, err := l.file.ReadAt(body, at.offset); err != nil {
			return fmt.Errorf("read early log: %w", err)
		}
		if err := next.append(number, body); err != nil {
			return err
		}
	}
	old := l.file
	*l = *next
	defer old.Close()
	if err := os.Rename(old.Name(), part+Suffix); err != nil {
		return fmt.Errorf("rename early log: %w", err)
	}
	return nil
}

// Close closes the file and leaves it for the next worker.
func (l *Log) Close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

// Import copies the answers for the records from first to before end from all other logs.
// It removes a log that no process uses and that holds nothing else.
func (l *Log) Import(first, end int64) error {
	paths, err := filepath.Glob(filepath.Join(quoted(l.dir), "*"+Suffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if l.file != nil && path == l.file.Name() {
			continue
		}
		if err := l.importFile(path, first, end); err != nil {
			return err
		}
	}
	return nil
}

// quoted escapes a path for Glob.
func quoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (l *Log) importFile(path string, first, end int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was committed meanwhile
	}
	if err != nil {
		return fmt.Errorf("open early log: %w", err)
	}
	defer file.Close()
	inside, outside := 0, 0
	err = each(file, func(number int64, body []byte) error {
		if number < first || number >= end {
			outside++
			return nil
		}
		inside++
		if l.Has(number) {
			return nil
		}
		return l.append(number, body)
	})
	if err != nil {
		return err
	}
	if inside > 0 && outside == 0 && syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = os.Remove(path)
	}
	return nil
}

// each passes the entries of a log to take, up to the first that is incomplete or damaged.
func each(file io.Reader, take func(number int64, body []byte) error) error {
	in := newReader(file)
	for {
		var header [headerSize]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return nil
		}
		length := binary.LittleEndian.Uint32(header[:])
		number := int64(binary.LittleEndian.Uint64(header[8:]))
		if length > maxEntry {
			return nil
		}
		var body bytes.Buffer // grows with what is there, whatever the length claims
		if n, err := io.CopyN(&body, in, int64(length)); err != nil || n < int64(length) {
			return nil
		}
		if sum(number, body.Bytes()) != binary.LittleEndian.Uint32(header[4:]) {
			return nil
		}
		if _, err := decode(body.Bytes()); err != nil {
			return nil
		}
		if err := take(number, body.Bytes()); err != nil {
			return err
		}
	}
}
