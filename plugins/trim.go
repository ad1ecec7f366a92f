package plugins

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// Trimmer is a kernel that can give cached device memory back. Trim is called
// between two batches, when memory is short; what it gives back it may take again.
// Info.CanTrim says that the kernel is one.
type Trimmer interface {
	Trim(ctx context.Context) error
}

// MemoryReporter is a kernel that knows what its framework holds of the device's
// memory. Memory is asked after each batch, while others may be computed: it must
// be quick and safe to call from another goroutine than Process.
type MemoryReporter interface {
	Memory() FrameworkMemory
}

// FrameworkMemory is what a framework holds of the device's memory, in bytes. The
// zero value means that it is not known.
type FrameworkMemory struct {
	// Library is the framework's name: "torch".
	Library string `json:"library,omitempty"`
	// Allocated is in use by tensors; Cached is what the framework holds in all,
	// Allocated included.
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
}

func reporterOf(k Kernel) MemoryReporter {
	reporter, _ := k.(MemoryReporter)
	return reporter
}

// Trim asks the kernel to give cached memory back, and tells what its framework
// held before and holds after it.
func (c *client) Trim(ctx context.Context) (before, after FrameworkMemory, err error) {
	reply, err := c.rpc.Trim(ctx, &kernelpb.TrimRequest{})
	if status.Code(err) == codes.Unimplemented { // a kernel in another language, or an old one
		return before, after, nil
	}
	if err != nil {
		return before, after, c.unary(ctx, err)
	}
	before, after = unpackMemory(reply.GetBefore()), unpackMemory(reply.GetAfter())
	c.mu.Lock()
	c.memory = after
	c.mu.Unlock()
	return before, after, unpackFailure(reply.GetFailure(), fault.Batch)
}

// Memory is what the kernel said last.
func (c *client) Memory() FrameworkMemory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

// Trim calls the kernel between two batches, like every other call.
func (s *server) Trim(ctx context.Context, _ *kernelpb.TrimRequest) (*kernelpb.TrimReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	trimmer, ok := s.kernel.(Trimmer)
	if !ok {
		return &kernelpb.TrimReply{}, nil
	}
	reply := &kernelpb.TrimReply{}
	reporter := reporterOf(s.kernel)
	if reporter != nil {
		reply.Before = packMemory(reporter.Memory())
	}
	reply.Failure = packFailure(trimmer.Trim(ctx))
	if reporter != nil {
		reply.After = packMemory(reporter.Memory())
	}
	return reply, nil
}

func packMemory(m FrameworkMemory) *kernelpb.Memory {
	if m == (FrameworkMemory{}) {
		return nil
	}
	return &kernelpb.Memory{Library: valid(m.Library), Allocated: m.Allocated, Cached: m.Cached}
}

func unpackMemory(m *kernelpb.Memory) FrameworkMemory {
	return FrameworkMemory{Library: m.GetLibrary(), Allocated: m.GetAllocated(), Cached: m.GetCached()}
}
