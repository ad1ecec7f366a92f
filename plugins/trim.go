package plugins

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// Trimmer is implemented by kernels that can release cached device memory; they must set
// Info.CanTrim. Trim is called between two batches when memory is short. The kernel may
// allocate the memory again later.
type Trimmer interface {
	Trim(ctx context.Context) error
}

// MemoryReporter is implemented by kernels that know how much device memory their
// framework holds. Memory is called after each batch, possibly during another: it must be
// fast, and safe to call from another goroutine than Process.
type MemoryReporter interface {
	Memory() FrameworkMemory
}

// FrameworkMemory is the device memory that a framework holds, in bytes. The zero value
// means unknown.
type FrameworkMemory struct {
	// Library is the framework's name: "torch".
	Library string `json:"library,omitempty"`
	// Allocated is in use by tensors. Cached is everything that the framework holds,
	// including Allocated.
	Allocated uint64 `json:"allocated"`
	Cached    uint64 `json:"cached"`
}

func reporterOf(k Kernel) MemoryReporter {
	reporter, _ := k.(MemoryReporter)
	return reporter
}

// Trim asks the kernel to release cached memory, and returns what its framework held
// before and after.
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

// Memory returns the memory that the kernel last reported.
func (c *client) Memory() FrameworkMemory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

// Trim calls the kernel between two batches: the lock serializes it with other calls.
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
