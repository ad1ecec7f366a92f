package plugins

import (
	"context"

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
