package protocol

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/gpurun/gpurun/internal/shmem"
)

// arena is memory that a worker and its kernel process share. It holds records and
// results; the messages carry offsets into it. It has two halves. Each side writes to its
// own half and maps the other's read-only, so that a kernel that writes to a record
// crashes instead of changing it under the worker.
//
// An arena belongs to one kernel process and is never reused for another, so a dying
// process cannot damage the batches of its successor.
type Arena struct {
	Own, Peer []byte
	// ownAt and peerAt are the offsets of the halves in the arena; offsets in messages
	// count from its beginning.
	ownAt, peerAt uint64

	mu     sync.Mutex
	space  *shmem.Space
	unmap  func()
	users  int  // regions and streams that need the mappings
	closed bool // no further regions are allocated
}

// arenaVariable passes a kernel process the descriptor of its arena.
const ArenaVariable = "GPURUN_ARENA"

// The sizes to try. The file is sparse: it takes only the memory that batches use.
const (
	ArenaSize      = 16 << 30
	SmallArenaSize = 1 << 30
)

// Memory is shared memory for the records of a batch, which the kernel process reads
// without a copy. Records in any other memory are copied.
type Memory struct {
	arena *Arena
	start int
	data  []byte
}

const (
	// minRegion is the multiple that sizes are rounded up to.
	minRegion = 4 << 10
	// outsized is the size from which the pages of a freed region are returned to the
	// system. Smaller regions keep theirs warm for the next batch.
	Outsized = 16 << 20
)

// alloc allocates at least n bytes of this side's half; nil if there is no room.
func (a *Arena) Alloc(n int) *Memory {
	if a == nil || n > len(a.Own) {
		return nil
	}
	size := max(n+minRegion-1, minRegion) / minRegion * minRegion
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	start, ok := a.space.Take(size)
	if !ok {
		return nil
	}
	a.users++
	return &Memory{a, start, a.Own[start : start+size : start+size]}
}

// Bytes returns the memory, the same slice each time.
func (b *Memory) Bytes() []byte { return b.data }

// Free releases the memory. The batch whose records it holds must be complete, and the
// caller must not use the bytes or the records afterwards.
func (b *Memory) Free() {
	b.arena.mu.Lock()
	b.arena.space.Give(b.start)
	b.arena.mu.Unlock()
	b.arena.Drop()
}

// Used returns the number of regions in use.
func (a *Arena) Used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.space.Blocks()
}

// hold keeps the mappings until drop is called; false if they are already unmapped.
func (a *Arena) Hold() bool {
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

func (a *Arena) Drop() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users--
	a.release()
}

// close closes the arena. It is unmapped when its last user is done.
func (a *Arena) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.release()
}

func (a *Arena) release() {
	if a.closed && a.users == 0 && a.unmap != nil {
		a.unmap()
		a.unmap = nil
	}
}

// offsetOf returns the offset of data in the arena, if it is in this side's half.
func (a *Arena) OffsetOf(data []byte) (uint64, bool) {
	if a == nil || len(data) == 0 || len(data) > len(a.Own) {
		return 0, false
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(a.Own)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	if at < from || at-from > uintptr(len(a.Own)-len(data)) {
		return 0, false
	}
	return uint64(at-from) + a.ownAt, true
}

// isTheirs reports whether an address is in the other side's half.
func (a *Arena) IsTheirs(at uintptr) bool {
	if a == nil {
		return false
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(a.Peer)))
	return at >= from && at-from < uintptr(len(a.Peer))
}

var errNoArena = errors.New("it refers to shared memory, but there is none")

// at returns n bytes of the other side's half, starting at offset. The other side may
// send any offset and may change the bytes at any time: inspect a copy.
func (a *Arena) at(offset, n uint64) ([]byte, error) {
	if a == nil {
		return nil, errNoArena
	}
	start := offset - a.peerAt
	if offset < a.peerAt || start > uint64(len(a.Peer)) || n > uint64(len(a.Peer))-start {
		return nil, fmt.Errorf("%d bytes at %d are outside its half of the shared memory", n, offset)
	}
	return a.Peer[start : start+n : start+n], nil
}
