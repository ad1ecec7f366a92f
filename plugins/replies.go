package plugins

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// replies sends results back to the worker in the order of the batches.
type replies struct {
	reporter *reporter

	mu   sync.Mutex
	held []heldReply // sent, but perhaps not copied yet
}

// heldReply is the arena memory of a reply, kept until the worker has copied it.
type heldReply struct {
	sequence uint64
	carrier  *protocol.Carrier
}

// consumed frees the arena memory of the replies up to sequence.
func (o *replies) consumed(sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.held) > 0 && o.held[0].sequence <= sequence {
		o.held[0].carrier.Free()
		o.held = o.held[1:]
	}
}

func (o *replies) sendInOrder(stream kernelpb.Kernel_ProcessServer, open <-chan *started) error {
	var failed error
	for batch := range open {
		select {
		case <-batch.results.Done():
		case <-stream.Context().Done():
			failed = stream.Context().Err()
		}
		if failed == nil { // else the worker no longer listens: just drain the queue
			failed = o.send(stream, batch)
		}
	}
	return failed
}

func (o *replies) send(stream kernelpb.Kernel_ProcessServer, batch *started) error {
	batch.reply.Report = o.reporter.next()
	o.mu.Lock()
	o.held = append(o.held, heldReply{batch.sequence, batch.carrier})
	o.mu.Unlock()
	return stream.Send(batch.reply)
}

// pack builds the reply as soon as the results are complete.
func (b *started) pack() {
	err := b.results.err
	if err == nil {
		b.reply = packReply(b.carrier, b.sequence, b.batch, b.results)
		size := max(b.carrier.Total, uint64(proto.Size(b.reply)))
		if size <= protocol.MaxMessage {
			return
		}
		b.carrier.Free()
		err = fault.TooLarge.New("kernel returned %d bytes for one batch; the limit is %d", size, protocol.MaxMessage)
	}
	b.reply = &kernelpb.ProcessReply{Sequence: b.sequence, Failure: packFailure(err)}
}
