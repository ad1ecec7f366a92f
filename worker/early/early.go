// Package early keeps answers of a concurrent kernel before they are committed, so that no
// answered record is computed again after a process was killed. A record's answer may have
// to wait for those before it, and a part is committed only at the next checkpoint.
//
// A log is a file next to the parts. A worker appends every successful answer for the records
// of a chunk to the chunk's log at once. When it closes a part, it renames the log after the
// part, so that both are removed together. Before that, answers behind the part go to a new log.
// If they are most of what the log holds, the log keeps its name and is continued. A worker that
// begins a chunk imports the answers that others have logged for its records.
//
// An entry is a header of four numbers in little-endian order, then the verdict, the number
// of nulls, and each line after its length:
//
//	length of what follows the header (4 bytes), its CRC-32C with the record's number (4),
//	the record's number (8)
//
// The first entry has another verdict. Its number is the first of the chunk's records, and it
// holds the number behind the last one, so that others need not read the rest of the log.
//
// Failures are not kept for other workers: a kernel that failed because a server was down must
// get its records again. A worker whose memory does not suffice for them logs them for itself;
// Import skips them. A log survives the death of processes as it is written, and a power loss
// once a Syncer has synced it.
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

// Log holds the answers for the records of one chunk. It is not safe for concurrent use.
type Log struct {
	dir        string
	first, end int64    // the numbers of the chunk's first record, and behind its last
	file       *os.File // nil before the first answer
	path       string   // of file
	size       int64    // of what is written
	pending    []byte   // entries that Flush writes
	places     index
	syncer     *Syncer
}

// New returns an empty log in dir for the records from first up to, but not including, end. Its
// file is created with the first answer.
func New(dir string, first, end int64, syncer *Syncer) *Log {
	return &Log{dir: dir, first: first, end: end, places: make(index), syncer: syncer}
}

const (
	headerSize = 16
	// maxEntry limits the size of an entry that a damaged file can make a reader allocate.
	maxEntry = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Has reports whether the log holds the answer for a record.
func (l *Log) Has(number int64) bool {
	at := l.places.get(number)
	return at.present() && !at.failure
}

// Length returns about how many bytes the entry for a record has, 0 if there is none.
func (l *Log) Length(number int64) int { return int(l.places.get(number).length) }

// Add appends the answer for a record.
func (l *Log) Add(number int64, a Answer) error {
	if err := l.Put(number, a); err != nil {
		return err
	}
	return l.Flush()
}

// Put adds the answer for a record to those that the next Flush appends together.
func (l *Log) Put(number int64, a Answer) error {
	return l.put(number, false, a.encode)
}

// AddFailure appends why a record failed. Only this log returns it.
func (l *Log) AddFailure(number int64, failure []byte) error {
	err := l.put(number, true, func(dst []byte) []byte { return append(append(dst, failureVerdict), failure...) })
	if err != nil {
		return err
	}
	return l.Flush()
}

// put encodes an entry at the end of what Flush writes.
func (l *Log) put(number int64, failure bool, encode func(dst []byte) []byte) error {
	if l.file == nil {
		if err := l.create(); err != nil {
			return fmt.Errorf("create early log: %w", err)
		}
		l.encode(l.first, l.encodeRange)
	}
	at := l.encode(number, encode)
	at.failure = failure
	l.places.set(number, at)
	if len(l.pending) >= flushBytes {
		return l.Flush()
	}
	return nil
}

// encode adds an entry to what Flush writes, and returns where it will be.
func (l *Log) encode(number int64, encode func(dst []byte) []byte) place {
	start := len(l.pending)
	l.pending = encode(append(l.pending, make([]byte, headerSize)...))
	header, body := l.pending[start:start+headerSize], l.pending[start+headerSize:]
	binary.LittleEndian.PutUint32(header, uint32(len(body)))
	binary.LittleEndian.PutUint32(header[4:], sum(number, body))
	binary.LittleEndian.PutUint64(header[8:], uint64(number))
	return place{offset: l.size + int64(start) + headerSize, length: uint32(len(body))}
}

// encodeRange encodes the first entry.
func (l *Log) encodeRange(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, rangeVerdict), uint64(l.end))
}

// Flush writes what was put. After an error, the log must not be used.
func (l *Log) Flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	n, err := l.file.Write(l.pending)
	if err != nil {
		_ = l.file.Truncate(l.size)
		return fmt.Errorf("write early log: %w", err)
	}
	l.size += int64(n)
	l.syncer.wrote(l.path)
	l.pending = l.pending[:0]
	if cap(l.pending) > keptBuffer {
		l.pending = nil
	}
	return nil
}

const (
	// flushBytes limits how much waits for Flush.
	flushBytes = 1 << 20
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 4 << 20
	// failureVerdict begins an entry that is a failure, rangeVerdict the first entry.
	failureVerdict = 0xff
	rangeVerdict   = 0xfe
)

func sum(number int64, body []byte) uint32 {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], uint64(number))
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, body)
}

// create creates the file. Its lock shows other workers that it is in use.
func (l *Log) create() error {
	var random [4]byte
	_, _ = rand.Read(random[:])
	path := filepath.Join(l.dir, fmt.Sprintf("%012d-%s%s", l.first, hex.EncodeToString(random[:]), Suffix))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	l.file, l.path = file, path
	return nil
}

// Get returns the answer for a record that the log has.
func (l *Log) Get(number int64) (Answer, error) {
	if !l.Has(number) {
		return Answer{}, fmt.Errorf("the early log has no answer for record %d", number)
	}
	body, err := l.body(l.places.get(number))
	if err != nil {
		return Answer{}, err
	}
	return decode(body)
}

// Failure returns what AddFailure has appended for a record, nil if nothing.
func (l *Log) Failure(number int64) ([]byte, error) {
	at := l.places.get(number)
	if !at.failure {
		return nil, nil
	}
	body, err := l.body(at)
	if err != nil {
		return nil, err
	}
	return body[1:], nil
}

// body reads an entry without its header.
func (l *Log) body(at place) ([]byte, error) {
	if err := l.Flush(); err != nil {
		return nil, err
	}
	body := make([]byte, at.length)
	if _, err := l.file.ReadAt(body, at.offset); err != nil {
		return nil, fmt.Errorf("read early log: %w", err)
	}
	return body, nil
}

// Rotate must be called when a part with the records before end is closed. If the log holds more
// for the records from end on, it is continued. Otherwise those answers go to a new log, and the
// file is renamed after the part.
func (l *Log) Rotate(end int64, part string) error {
	if l.file == nil {
		return nil
	}
	if err := l.Flush(); err != nil {
		return err
	}
	l.places.forget(end)
	if 2*l.places.bytes(end) > l.size {
		return nil
	}
	next := New(l.dir, end, l.end, l.syncer)
	for number, at := range l.places.from(end) {
		body, err := l.body(at)
		if err == nil {
			err = next.put(number, at.failure, func(dst []byte) []byte { return append(dst, body...) })
		}
		if err != nil {
			return err
		}
	}
	if err := next.sync(); err != nil { // the file may be removed with the part
		return err
	}
	old := *l
	*l = *next
	defer old.Close()
	if err := os.Rename(old.path, part+Suffix); err != nil {
		return fmt.Errorf("rename early log: %w", err)
	}
	old.syncer.renamed(old.path, part+Suffix)
	return nil
}

// Close closes the file and leaves it for the next worker.
func (l *Log) Close() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

// Import copies the answers for the chunk's records from all other logs. It removes a log that
// no process uses and that holds nothing else.
func (l *Log) Import() error {
	paths, err := filepath.Glob(filepath.Join(quoted(l.dir), "*"+Suffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if path == l.path {
			continue
		}
		if err := l.importFile(path); err != nil {
			return err
		}
	}
	return l.Flush()
}

// quoted escapes a path for Glob.
func quoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (l *Log) importFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was committed meanwhile
	}
	if err != nil {
		return fmt.Errorf("open early log: %w", err)
	}
	defer file.Close()
	if first, end, known := rangeOf(file); known && (first >= l.end || end <= l.first) {
		return nil
	}
	inside, outside := 0, 0
	err = each(file, func(number int64, body []byte) error {
		switch {
		case body[0] == rangeVerdict:
			return nil
		case number < l.first || number >= l.end:
			outside++
			return nil
		}
		inside++
		if body[0] == failureVerdict || l.Has(number) {
			return nil
		}
		return l.put(number, false, func(dst []byte) []byte { return append(dst, body...) })
	})
	if err != nil || inside == 0 || outside > 0 || syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	_ = os.Remove(path)
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
		if _, err := decode(body.Bytes()); err != nil && (body.Len() == 0 || body.Bytes()[0] < rangeVerdict) {
			return nil
		}
		if err := take(number, body.Bytes()); err != nil {
			return err
		}
	}
}
