package plugins

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// batches is the stream of batches to a kernel process.
type batches struct {
	*link
	stream   *outgoing // nil before the first batch
	sequence uint64
	pending  []awaited // in the order in which they were sent
	consumed uint64    // the last batch whose reply has been copied
}

type awaited struct {
	sequence uint64
	results  *Results
	carrier  *carrier // the arena memory of the request
}

func (a awaited) complete(err error) {
	a.carrier.free()
	a.results.complete(err)
}

// submit numbers the batch and queues its results before it is sent: the reply may
// arrive at once.
func (b *batches) submit(request *kernelpb.ProcessRequest, batch awaited) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil && b.stream == nil {
		b.broken = b.openStream()
	}
	if b.broken != nil {
		return b.broken
	}
	b.sequence++
	request.Sequence, request.Consumed = b.sequence, b.consumed
	batch.sequence = b.sequence
	b.pending = append(b.pending, batch)
	b.stream.add(request)
	return nil
}

func (b *batches) openStream() error {
	if !b.arena.hold() { // for receive, which may outlive the process
		return errClosed
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := b.rpc.Process(ctx)
	if err != nil {
		cancel()
		b.arena.drop()
		return b.explain(err)
	}
	b.stream = &outgoing{stream: stream, cancel: cancel, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go b.stream.send()
	go b.receive(b.stream)
	return nil
}

// receive completes the results in the order in which the batches were sent.
func (b *batches) receive(s *outgoing) {
	defer b.arena.drop()
	defer close(s.ended)
	defer s.cancel()
	for {
		reply, err := s.stream.Recv()
		if err != nil {
			b.fail(b.streamError(err))
			return
		}
		b.mu.Lock()
		if len(b.pending) == 0 || b.pending[0].sequence != reply.GetSequence() {
			b.mu.Unlock()
			b.fail(fault.KernelContract.Of(fault.Crash, "kernel answered a batch that was not sent"))
			return
		}
		head := b.pending[0]
		b.pending = b.pending[1:]
		b.mu.Unlock()
		err = b.fill(head.results, reply)
		unfit := makesUnfit(err)
		if unfit {
			b.markUnfit(err)
		}
		head.complete(err)
		if unfit {
			b.fail(err)
			return
		}
	}
}

// streamError returns why the stream ended. If Close ended it and no batch is pending,
// there is no cause to wait for.
func (b *batches) streamError(err error) error {
	b.mu.Lock()
	quiet := errors.Is(err, io.EOF) && len(b.pending) == 0 && b.broken != nil
	b.mu.Unlock()
	if quiet {
		return errClosed
	}
	return b.explain(err)
}

func (b *batches) fill(results *Results, reply *kernelpb.ProcessReply) error {
	b.note(reply.GetSources(), reply.GetWarnings(), reply.GetMemory())
	if err := b.unpackComputing(reply.GetFailure(), fault.Batch); err != nil {
		return err
	}
	err := unpackReply(b.arena, reply, results)
	b.mu.Lock()
	b.consumed = reply.GetSequence()
	b.mu.Unlock()
	return err
}

// outgoing queues requests to the kernel. Sending may block on flow control, so it has its
// own goroutine.
type outgoing struct {
	stream kernelpb.Kernel_ProcessClient
	cancel context.CancelFunc
	wake   chan struct{} // signals add and close
	ended  chan struct{} // closed when the last reply has been received

	mu      sync.Mutex
	waiting []*kernelpb.ProcessRequest
	closed  bool
}

func (o *outgoing) add(request *kernelpb.ProcessRequest) {
	o.mu.Lock()
	o.waiting = append(o.waiting, request)
	o.mu.Unlock()
	o.signal()
}

// close ends the stream after the requests that were added.
func (o *outgoing) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outgoing) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// send sends requests until the stream ends. Send fails only if the stream has ended:
// receive then finds the cause and fails everything pending with it.
func (o *outgoing) send() {
	for {
		o.mu.Lock()
		requests, closed := o.waiting, o.closed
		o.waiting = nil
		o.mu.Unlock()
		for _, request := range requests {
			if o.stream.Send(request) != nil {
				return
			}
		}
		if closed {
			_ = o.stream.CloseSend()
			return
		}
		select {
		case <-o.wake:
		case <-o.stream.Context().Done():
			return
		}
	}
}
