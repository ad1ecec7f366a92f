package plugins

import (
	"context"
	"encoding/json"

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

// Trim calls the kernel between two batches: the lock serializes it with other calls.
func (s *server) Trim(ctx context.Context, _ *kernelpb.TrimRequest) (*kernelpb.TrimReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	reply := &kernelpb.TrimReply{}
	trimmer, _ := s.kernel.(Trimmer)
	if trimmer != nil {
		reply.Before = encode(s.reporter.heldMemory())
		reply.Failure = packFailure(trimmer.Trim(ctx))
		reply.After = encode(s.reporter.heldMemory())
	}
	return reply, nil
}

// Trim asks the kernel to release cached memory, and returns what its framework held
// before and after.
func (c *client) Trim(ctx context.Context) (before, after FrameworkMemory, err error) {
	reply, err := c.link.rpc.Trim(ctx, &kernelpb.TrimRequest{})
	if status.Code(err) == codes.Unimplemented { // a kernel in another language
		return before, after, nil
	}
	if err != nil {
		return before, after, c.unary(ctx, err)
	}
	_, _ = json.Unmarshal(reply.GetBefore(), &before), json.Unmarshal(reply.GetAfter(), &after) // empty if unknown
	c.link.mu.Lock()
	c.link.memory = after
	c.link.mu.Unlock()
	return before, after, unpackFailure(reply.GetFailure(), fault.Batch)
}
