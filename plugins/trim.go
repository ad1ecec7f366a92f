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

// Trim calls the kernel between two batches: the lock serializes it with other calls.
func (s *server) Trim(ctx context.Context, _ *kernelpb.TrimRequest) (*kernelpb.TrimReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	reply := &kernelpb.TrimReply{}
	trimmer, _ := s.kernel.(Trimmer)
	if trimmer != nil {
		reply.Before = encode(s.reporter.memory())
		reply.Failure = packFailure(trimmer.Trim(ctx))
		reply.After = encode(s.reporter.memory())
	}
	return reply, nil
}
