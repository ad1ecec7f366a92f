package plugins

import (
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// link is what the streams of batches and of records have in common: the connection, and what the
// kernel process has told of itself.
type link struct {
	rpc kernelpb.KernelClient
	// explain turns a transport error into its cause: why the process on the other side
	// exited. It may wait for that cause.
	explain func(error) error
	fail    func(error) // completes everything in flight
	arena   *arena      // nil if there is none

	mu       sync.Mutex // guards what follows, batches and asking
	broken   error      // why nothing more can be sent
	closed   bool       // by Close
	onCPU    bool       // the device passed to Open is a CPU
	shared   bool       // the kernel process has mapped the arena
	inputs   []string
	memory   FrameworkMemory // as last reported by the kernel
	sources  []Source
	warnings []string
}

// unpackComputing is unpackFailure for the two calls that use the device. A kernel in
// another language sends its failures unclassified, so their texts are classified here.
func (l *link) unpackComputing(failure []byte, kind fault.Kind) error {
	if e := parseFailure(failure); e != nil && e.Kind == fault.Unknown {
		e.Kind, e.Sign = kindByText(kind, e.Message, e.Detail, l.isOnCPU())
		return e.Bounded()
	}
	return unpackFailure(failure, kind)
}

func (l *link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *link) isOnCPU() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onCPU
}

// sharedArena returns the arena once the kernel process is known to have mapped it.
func (l *link) sharedArena() *arena {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared {
		return l.arena
	}
	return nil
}

// makesUnfit reports whether later batches of the same process would fail too: its context
// on the device is lost, or it has used up the host's memory.
func makesUnfit(err error) bool {
	e := fault.As(err)
	return e != nil && (e.Kind == fault.Crash || e.Sign == fault.HostMemory)
}

// markUnfit declares a running process unfit for further batches: they would fail because
// of the process and not because of their records. The owner of the process must end it.
// The mark must be set before the batch is completed, because the owner then checks
// Broken.
func (l *link) markUnfit(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}
