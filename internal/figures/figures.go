// Package figures keeps counts that the processes of a job share, such as requests and
// tokens, in a file of the job folder. The file is mapped: a count that a process has added
// is there for the others at once, and stays when the process is killed. A job that resumes
// continues to count.
//
// The file is one page: a header, then a slot of 64 bytes for each figure, with its value
// and its name. Numbers are in the byte order of the machine. A slot is claimed under the
// file's lock; values change atomically.
package figures

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Names that gpurun gives a meaning. Kernels may count anything else.
const (
	// Requests are attempts to compute a record: what a server was asked, retries included.
	Requests = "requests"
	// PromptTokens, CompletionTokens and TotalTokens are what servers report as used.
	PromptTokens     = "prompt_tokens"
	CompletionTokens = "completion_tokens"
	TotalTokens      = "total_tokens"
	// Truncated are answers that servers cut off at a limit of tokens.
	Truncated = "truncated"
)

const (
	header   = "gpurun figures 1\n"
	size     = 4096
	slotSize = 64
	slots    = size/slotSize - 1
	// A slot has its value, the length of its name, and the name.
	lengthAt = 8
	nameAt   = 12
	maxName  = slotSize - nameAt
)

// File is a file of counts. Its methods are safe for concurrent use, also by several
// processes.
type File struct {
	file *os.File
	data []byte

	mu    sync.Mutex
	known map[string]int // slots by name
}

// ErrDamaged means that a file is not one that Open made.
var ErrDamaged = errors.New("not a file of figures")

// Open opens the file, or creates it with all counts 0.
func Open(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, known: make(map[string]int)}
	if err := f.locked(f.prepare); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.data, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		file.Close()
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return f, nil
}

// prepare writes a new file, with all of its bytes: there is room for them from then on.
func (f *File) prepare() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		page := make([]byte, size)
		copy(page, header)
		if _, err := f.file.WriteAt(page, 0); err != nil {
			_ = f.file.Truncate(0)
			return err
		}
		return f.file.Sync()
	}
	begin := make([]byte, len(header))
	if n, _ := f.file.ReadAt(begin, 0); info.Size() != size || n < len(begin) || string(begin) != header {
		return ErrDamaged
	}
	return nil
}

// locked calls do while no other process does the same.
func (f *File) locked(do func() error) error {
	for {
		err := syscall.Flock(int(f.file.Fd()), syscall.LOCK_EX)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Flock(int(f.file.Fd()), syscall.LOCK_UN) }()
		return do()
	}
}

// Close releases the file. It must not be used afterwards.
func (f *File) Close() {
	if f == nil {
		return
	}
	_ = unix.Munmap(f.data)
	_ = f.file.Close()
}

// Add adds n to a count. It ignores a name that is not valid, and new ones when there are too
// many, and returns false for them.
func (f *File) Add(name string, n int64) bool {
	value := f.value(name, true)
	if value == nil {
		return false
	}
	value.Add(n)
	return true
}

// Take adds 1 to a count unless that has reached limit; 0 means that there is none.
func (f *File) Take(name string, limit int64) bool {
	value := f.value(name, true)
	if value == nil {
		return limit == 0
	}
	for {
		now := value.Load()
		if limit > 0 && now >= limit {
			return false
		}
		if value.CompareAndSwap(now, now+1) {
			return true
		}
	}
}

// Raise makes a count at least n.
func (f *File) Raise(name string, n int64) {
	value := f.value(name, true)
	for value != nil {
		if now := value.Load(); now >= n || value.CompareAndSwap(now, n) {
			return
		}
	}
}

// Read returns all counts of a file that other processes may be using, on this host or on
// another one.
func Read(path string) (map[string]int64, error) {
	data, err := os.ReadFile(path)
	switch {
	case err != nil || len(data) == 0: // empty: it is being created
		return nil, err
	case len(data) != size || !bytes.HasPrefix(data, []byte(header)):
		return nil, fmt.Errorf("%s: %w", path, ErrDamaged)
	}
	return (&File{data: data}).All(), nil
}

// Get returns a count.
func (f *File) Get(name string) int64 {
	if value := f.value(name, false); value != nil {
		return value.Load()
	}
	return 0
}

// All returns all counts, nil if there are none.
func (f *File) All() map[string]int64 {
	if f == nil {
		return nil
	}
	var all map[string]int64
	for i := range slots {
		name := f.name(i)
		if name == "" {
			break
		}
		if all == nil {
			all = make(map[string]int64)
		}
		all[name] = f.at(i).Load()
	}
	return all
}

// Valid reports whether a count can have this name: lowercase letters, digits and
// underscores, and not too long.
func Valid(name string) bool {
	return name != "" && len(name) <= maxName && name[0] > '9' &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// value returns the place of a count, nil if there is none. With claim, it makes one.
func (f *File) value(name string, claim bool) *atomic.Int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.known[name]; ok {
		return f.at(i)
	}
	if !Valid(name) {
		return nil
	}
	i := f.find(name, false)
	if i < 0 && claim {
		_ = f.locked(func() error { i = f.find(name, true); return nil })
	}
	if i < 0 {
		return nil
	}
	f.known[name] = i
	return f.at(i)
}

// find returns the slot of a name, -1 if there is none. With claim, it gives the name the next
// one; -1 if all are taken.
func (f *File) find(name string, claim bool) int {
	for i := range slots {
		switch f.name(i) {
		case name:
			return i
		case "":
			if !claim {
				return -1
			}
			copy(f.slot(i)[nameAt:], name)
			f.length(i).Store(uint32(len(name))) // last: others may read the name now
			return i
		}
	}
	return -1
}

func (f *File) slot(i int) []byte { return f.data[(i+1)*slotSize : (i+2)*slotSize] }

func (f *File) at(i int) *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&f.slot(i)[0])) }

func (f *File) length(i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&f.slot(i)[lengthAt]))
}

// name returns the name of a slot, "" if it is free.
func (f *File) name(i int) string {
	n := min(int(f.length(i).Load()), maxName)
	return string(f.slot(i)[nameAt : nameAt+n])
}
