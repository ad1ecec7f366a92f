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
// The first entry has a verdict of its own. Its number is the first of the chunk's records, and the
// number behind the last one stands in place of the nulls, so that others need not read the rest of
// the log.
//
// Failures are not kept for other workers: a kernel that failed because a server was down must
// get its records again. A worker whose memory does not suffice for them logs them for itself;
// Import skips them. A log survives the death of processes as it is written, and a power loss
// once a Syncer has synced it.
package early

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpurun/gpurun/chunk/commit"
)

// Suffix ends the names of logs; chunk/commit removes them with their parts.
const Suffix = commit.EarlySuffix

// Answer is the answer for one record.
type Answer struct {
	Verdict uint8
	Lines   [][]byte
	Nulls   int64
}

const (
	// Failure is the verdict of a record that failed. Only the log that has it returns it.
	Failure = 0xff
	// chunkRange is the verdict of the first entry.
	chunkRange = 0xfe
)

// Log holds the answers for the records of one chunk. It is not safe for concurrent use.
type Log struct {
	dir        string
	first, end int64    // the numbers of the chunk's first record, and behind its last
	file       *os.File // nil before the first answer
	path       string   // of file
	size       int64    // of what is written
	pending    []byte   // entries that Flush writes
	places     map[int64]place
	syncer     *Syncer
}

// place is where the answer for a record is in the file, without its header.
type place struct {
	offset int64
	length uint32
}

// New returns an empty log in dir for the records from first up to, but not including, end. Its
// file is created with the first answer.
func New(dir string, first, end int64, syncer *Syncer) *Log {
	return &Log{dir: dir, first: first, end: end, places: make(map[int64]place), syncer: syncer}
}

const (
	headerSize = 16
	// summed is where the part of an entry begins that its sum covers.
	summed = 8
	// flushBytes limits how much waits for Flush.
	flushBytes = 1 << 20
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Has reports whether the log holds the answer for a record.
func (l *Log) Has(number int64) bool {
	_, has := l.places[number]
	return has
}

// Length returns about how many bytes the entry for a record has, 0 if there is none.
func (l *Log) Length(number int64) int { return int(l.places[number].length) }

// Put adds the answer for a record to those that the next Flush appends together.
func (l *Log) Put(number int64, a Answer) error {
	if l.file == nil {
		if err := l.create(); err != nil {
			return fmt.Errorf("create early log: %w", err)
		}
		l.encode(l.first, Answer{Verdict: chunkRange, Nulls: l.end})
	}
	l.places[number] = l.encode(number, a)
	if len(l.pending) >= flushBytes {
		return l.Flush()
	}
	return nil
}

// encode adds an entry to what Flush writes, and returns where it will be.
func (l *Log) encode(number int64, a Answer) place {
	start := len(l.pending)
	l.pending = binary.LittleEndian.AppendUint64(append(l.pending, make([]byte, summed)...), uint64(number))
	l.pending = a.encode(l.pending)
	entry, length := l.pending[start:], uint32(len(l.pending)-start-headerSize)
	binary.LittleEndian.PutUint32(entry, length)
	binary.LittleEndian.PutUint32(entry[4:], crc32.Checksum(entry[summed:], castagnoli))
	return place{offset: l.size + int64(start) + headerSize, length: length}
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

// create creates the file. Its lock shows other workers that it is in use.
func (l *Log) create() error {
	path := filepath.Join(l.dir, fmt.Sprintf("%012d-%08x%s", l.first, rand.Uint32(), Suffix))
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
	at, has := l.places[number]
	if !has {
		return Answer{}, fmt.Errorf("the early log has no answer for record %d", number)
	}
	if err := l.Flush(); err != nil {
		return Answer{}, err
	}
	body := make([]byte, at.length)
	if _, err := l.file.ReadAt(body, at.offset); err != nil {
		return Answer{}, fmt.Errorf("read early log: %w", err)
	}
	return decode(body)
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
	size := int64(0)
	maps.DeleteFunc(l.places, func(number int64, at place) bool {
		if number >= end {
			size += headerSize + int64(at.length)
		}
		return number < end
	})
	if 2*size > l.size {
		return nil
	}
	next := New(l.dir, end, l.end, l.syncer)
	for _, number := range slices.Sorted(maps.Keys(l.places)) {
		a, err := l.Get(number)
		if err == nil {
			err = next.Put(number, a)
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
	for _, path := range logsIn(l.dir) {
		if path == l.path {
			continue
		}
		if err := l.importFile(path); err != nil {
			return err
		}
	}
	return l.Flush()
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
	inside, outside := 0, 0
	each(file, func(number int64, a Answer) bool {
		switch {
		case a.Verdict == chunkRange:
			return number < l.end && a.Nulls > l.first
		case number < l.first || number >= l.end:
			outside++
		default:
			inside++
			if a.Verdict != Failure && !l.Has(number) {
				err = l.Put(number, a)
			}
		}
		return err == nil
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
