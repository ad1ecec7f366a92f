package plugins

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// arena is memory that a worker and its kernel process share: records and results
// lie there, and the messages carry offsets. It has two halves. Each side writes
// to its own and maps the other's for reading only, so that a kernel that writes to
// a record's bytes dies instead of changing them under the worker.
//
// An arena belongs to one kernel process and is never used for another: whatever a
// dying process still does to it harms nobody.
type arena struct {
	own, peer []byte
	// ownAt and peerAt are where the halves stand in the arena; offsets in messages
	// count from its beginning.
	ownAt, peerAt uint64
	space         space
	inlineBelow   int // shorter strings do not come here

	mu     sync.Mutex
	unmap  func()
	users  int  // who must not lose the mappings: regions, the stream
	closed bool // nobody wants another
}

// arenaVariable tells a kernel process its arena: descriptor and size.
const arenaVariable = "GPURUN_ARENA"

// The sizes that are tried. The file is sparse: only what batches use takes memory.
const (
	arenaSize      = 16 << 30
	smallArenaSize = 1 << 30
)

// buffer is a region that somebody uses.
type buffer struct {
	arena  *arena
	region region
}

// alloc gives n bytes or more of this side's half; nil where there are none left.
func (a *arena) alloc(n int) *buffer {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	r, ok := a.space.alloc(n)
	if !ok {
		return nil
	}
	a.users++
	return &buffer{a, r}
}

// Bytes are the region's.
func (b *buffer) Bytes() []byte {
	return b.arena.own[b.region.offset : b.region.offset+b.region.size : b.region.offset+b.region.size]
}

// Free gives the region back; the bytes must not be used any more.
func (b *buffer) Free() {
	a := b.arena
	if b.region.size >= outsized {
		dropPages(b.Bytes())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.space.give(b.region)
	a.users--
	a.release()
}

// hold keeps the mappings until drop; false if they are gone already.
func (a *arena) hold() bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unmap == nil {
		return false
	}
	a.users++
	return true
}

func (a *arena) drop() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users--
	a.release()
}

// close ends the arena; it is unmapped when nobody holds a region of it any more.
func (a *arena) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.release()
}

func (a *arena) release() {
	if a.closed && a.users == 0 && a.unmap != nil {
		a.unmap()
		a.unmap = nil
	}
}

// size is that of both halves.
func (a *arena) size() uint64 {
	if a == nil {
		return 0
	}
	return uint64(len(a.own) + len(a.peer))
}

// offsetOf says where data stands in the arena, if it lies in this side's half.
func (a *arena) offsetOf(data []byte) (uint64, bool) {
	if a == nil || len(data) == 0 || len(data) > len(a.own) {
		return 0, false
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(a.own)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if at < from || at-from > uintptr(len(a.own)-len(data)) {
		return 0, false
	}
	return uint64(at-from) + a.ownAt, true
}

// isTheirs reports whether an address lies in the other side's half.
func (a *arena) isTheirs(at uintptr) bool {
	if a == nil {
		return false
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(a.peer)))
	return at >= from && at-from < uintptr(len(a.peer))
}

// at gives n bytes of the other side's half from offset on. The other side may
// say anything, and may change the bytes at any time: look at a copy.
func (a *arena) at(offset, n uint64) ([]byte, error) {
	if a == nil {
		return nil, fmt.Errorf("it speaks of shared memory, and there is none")
	}
	start := offset - a.peerAt
	if offset < a.peerAt || start > uint64(len(a.peer)) || n > uint64(len(a.peer))-start {
		return nil, fmt.Errorf("%d bytes at %d are outside its half of the shared memory", n, offset)
	}
	return a.peer[start : start+n : start+n], nil
}

// Memory is where a batch's records may lie so that the kernel process sees them
// without a copy. Other memory works too, and is copied.
type Memory interface {
	// Bytes is the memory, always the same.
	Bytes() []byte
	// Free gives it back: neither bytes nor records in it may be used any more, and
	// the batch that they were in must be complete.
	Free()
}

// Alloc gives memory of at least n bytes that the kernel process sees, or nil if
// there is none left, or no such memory at all. It may be called from any
// goroutine.
func (p *Process) Alloc(n int) Memory {
	if b := p.client.sharedArena().alloc(n); b != nil {
		return b
	}
	return nil
}

// parseArena reads arenaVariable.
func parseArena(value string) (descriptor int, size uint64, err error) {
	if _, err = fmt.Sscanf(value, "%d:%d", &descriptor, &size); err != nil || descriptor < 3 || size == 0 || size%2 != 0 {
		return 0, 0, fmt.Errorf("%s=%q makes no sense", arenaVariable, value)
	}
	return descriptor, size, nil
}

// withoutVariable is env without the variable: a kernel that is itself started by
// a kernel must not take its parent's arena for its own.
func withoutVariable(env []string, name string) []string {
	kept := make([]string, 0, len(env))
	for _, entry := range env {
		if !strings.HasPrefix(entry, name+"=") {
			kept = append(kept, entry)
		}
	}
	return kept
}
