package plugins

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// replies is the way of results back to the worker, in the order of the batches.
type replies struct {
	arena    *arena
	reporter MemoryReporter // nil: the kernel does not know its memory

	mu   sync.Mutex
	held []heldReply // sent, and not known to be copied
}

// heldReply is what a reply holds of the arena until the worker has copied it.
type heldReply struct {
	sequence uint64
	carrier  *carrier
}

// consumed gives back what the replies up to sequence hold.
func (o *replies) consumed(sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.held) > 0 && o.held[0].sequence <= sequence {
		o.held[0].carrier.free()
		o.held = o.held[1:]
	}
}

func (o *replies) sendInOrder(stream kernelpb.Kernel_ProcessServer, open <-chan *started, room <-chan struct{}) error {
	var failed error
	for batch := range open {
		select {
		case <-batch.results.Done():
		case <-stream.Context().Done():
			failed = stream.Context().Err()
		}
		<-room
		if failed != nil {
			continue // nobody listens; keep the kernel's loop moving
		}
		failed = stream.Send(batch.reply)
	}
	return failed
}

// replyTo packs the results of a batch: whatever memory they were in is not needed
// any more.
func (o *replies) replyTo(sequence uint64, batch Batch, results *Results, err error) *kernelpb.ProcessReply {
	if err != nil {
		return &kernelpb.ProcessReply{Sequence: sequence, Failure: packFailure(err)}
	}
	c := &carrier{arena: o.arena}
	reply := packReply(c, sequence, batch, results)
	if size := proto.Size(reply); size > maxMessage {
		c.free()
		err := fault.New(fault.Batch, "kernel returned %d bytes for one batch; the limit is %d", size, maxMessage)
		return &kernelpb.ProcessReply{Sequence: sequence, Failure: packFailure(err)}
	}
	if len(c.held) > 0 {
		o.mu.Lock()
		o.held = append(o.held, heldReply{sequence, c})
		o.mu.Unlock()
	}
	reply.Memory = o.memory()
	return reply
}

func (o *replies) memory() *kernelpb.Memory {
	if o.reporter == nil {
		return nil
	}
	return packMemory(o.reporter.Memory())
}
