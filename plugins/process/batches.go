package process

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// batches is the stream of batches to a kernel process.
type batches struct {
	*link
	flow     *flow // nil before the first batch
	sequence uint64
	unsent   []*kernelpb.ProcessRequest
	pending  []awaited // in the order in which they were sent
	consumed uint64    // the last batch whose reply has been copied
}

type awaited struct {
	sequence uint64
	results  *plugins.Results
	finish   func(error)
	carrier  *protocol.Carrier // the arena memory of the request
}

func (a awaited) complete(err error) {
	a.carrier.Free()
	a.finish(err)
}

// submit numbers the batch and queues its results before it is sent: the reply may
// arrive at once.
func (b *batches) submit(request *kernelpb.ProcessRequest, batch awaited) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil && b.flow == nil {
		b.flow, b.broken = startFlow(b.link, b.rpc.Process, b.next, b.receive, b.isIdle)
	}
	if b.broken != nil {
		return b.broken
	}
	b.sequence++
	request.Sequence, request.Consumed = b.sequence, b.consumed
	batch.sequence = b.sequence
	b.pending = append(b.pending, batch)
	b.unsent = append(b.unsent, request)
	b.flow.signal()
	return nil
}

func (b *batches) next() []*kernelpb.ProcessRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests := b.unsent
	b.unsent = nil
	return requests
}

func (b *batches) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) == 0
}

// receive completes the results in the order in which the batches were sent.
func (b *batches) receive(reply *kernelpb.ProcessReply) error {
	b.mu.Lock()
	if len(b.pending) == 0 || b.pending[0].sequence != reply.GetSequence() {
		b.mu.Unlock()
		return fault.KernelContract.Of(fault.Crash, "kernel answered a batch that was not sent")
	}
	head := b.pending[0]
	b.pending = b.pending[1:]
	b.mu.Unlock()
	err := b.fill(head.results, reply)
	unfit := makesUnfit(err)
	if unfit {
		b.markUnfit(err)
	}
	head.complete(err)
	if unfit {
		return err
	}
	return nil
}

func (b *batches) fill(results *plugins.Results, reply *kernelpb.ProcessReply) error {
	b.addReport(reply.GetReport())
	if err := b.unpackComputing(reply.GetFailure(), fault.Batch); err != nil {
		return err
	}
	err := unpackReply(b.arena, reply, results)
	b.mu.Lock()
	b.consumed = reply.GetSequence()
	b.mu.Unlock()
	return err
}
