package plugins

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// client is the worker's end of the connection: a Kernel whose Process returns
// immediately and completes the results when they arrive. The caller decides how many
// batches it keeps in flight.
type client struct {
	rpc kernelpb.KernelClient
	// explain turns a transport error into its cause: why the process on the other side
	// exited. It may wait for that cause.
	explain func(error) error

	mu       sync.Mutex
	stream   *outgoing
	sequence uint64
	pending  []awaited       // in the order in which they were sent
	broken   error           // why no further batch can be sent
	onCPU    bool            // the device passed to Open is a CPU
	consumed uint64          // the last batch whose reply has been copied
	memory   FrameworkMemory // as last reported by the kernel
	sources  []Source
	warnings []string

	arena  *arena // nil if there is none
	shared bool   // the kernel process has mapped the arena
	inputs []string

	asking asking  // records of a concurrent kernel
	within *within // such a kernel in this process, nil otherwise
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

func newClient(rpc kernelpb.KernelClient) *client {
	return &client{rpc: rpc, explain: func(err error) error { return fault.New(fault.Crash, "kernel: %w", err) }}
}

func (c *client) Describe(ctx context.Context, config Config) (Info, error) {
	reply, err := c.rpc.Describe(ctx, &kernelpb.DescribeRequest{Config: config})
	if err != nil {
		return Info{}, c.unary(ctx, err)
	}
	info := unpackInfo(reply.GetInfo())
	if len(info.Inputs) > maxInputs {
		return info, fault.New(fault.Incompatible, "the kernel declares %d inputs; the limit is %d", len(info.Inputs), maxInputs)
	}
	if err := checkConcurrency(info, true); err != nil {
		return info, err
	}
	c.mu.Lock()
	c.shared, c.inputs = reply.GetArena(), info.Inputs
	c.mu.Unlock()
	if c.within != nil {
		c.within.limit = info.RecordLimit()
	}
	return info, unpackFailure(reply.GetFailure(), fault.Incompatible)
}

func (c *client) Open(ctx context.Context, device Device, config Config) error {
	c.mu.Lock()
	c.onCPU = !device.GPU
	c.mu.Unlock()
	reply, err := c.rpc.Open(ctx, &kernelpb.OpenRequest{Config: config, Device: packDevice(device)})
	if err != nil {
		return c.unary(ctx, err)
	}
	c.noteSources(reply.GetSources())
	return c.unpackComputing(reply.GetFailure(), fault.Incompatible)
}

// unpackComputing is unpackFailure for the two calls that use the device. A kernel in
// another language sends its failures unclassified, so their texts are classified here.
func (c *client) unpackComputing(failure *kernelpb.Failure, kind fault.Kind) error {
	err := unpackFailure(failure, kind)
	if failure != nil && failure.GetKind() == uint32(fault.Unknown) {
		e := fault.As(err)
		e.Kind, e.Sign = kindByText(kind, e.Message, e.Detail, c.isOnCPU())
	}
	return err
}

func (c *client) isOnCPU() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.onCPU
}

// Close ends the stream, which tells the kernel that no batch follows.
func (c *client) Close() error { return c.close(context.Background()) }

func (c *client) close(ctx context.Context) error {
	c.mu.Lock()
	stream := c.stream
	if c.broken == nil {
		c.broken = errClosed
	}
	c.mu.Unlock()
	if err := c.asking.close(ctx); err != nil {
		return err
	}
	if stream != nil {
		stream.close()
		// The kernel handles one call at a time: wait for the batches in flight first.
		select {
		case <-stream.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	reply, err := c.rpc.Close(ctx, &kernelpb.CloseRequest{})
	if err != nil {
		return c.unary(ctx, err)
	}
	return unpackFailure(reply.GetFailure(), fault.Incompatible)
}

// errClosed reports a batch submitted after Close, which is a mistake of the caller.
var errClosed = fault.New(fault.Crash, "kernel is closed")

// unary distinguishes the caller's deadline from a broken kernel.
func (c *client) unary(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The other side enforces the deadline too, and may do so first.
	if status.Code(err) == codes.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return c.explain(err)
}

// Process never blocks: otherwise a kernel that stops reading would block the caller,
// which could then not enforce its timeout.
func (c *client) Process(_ context.Context, batch Batch, results *Results) error {
	finish := results.Defer()
	held := &carrier{arena: c.sharedArena(), short: true}
	request := &kernelpb.ProcessRequest{Records: packRecords(held, batch), Spans: c.spansOf(batch), Fetched: packFetched(held, batch),
		IsolateMs: uint32(min(max(batch.isolation.Milliseconds(), 0), math.MaxUint32))}
	if size := max(held.total, uint64(proto.Size(request))); size > maxMessage {
		held.free()
		finish(fault.New(fault.Batch, "a batch of %d bytes exceeds the limit of %d", size, maxMessage))
		return nil
	}
	if err := c.submit(request, awaited{results: results, carrier: held}); err != nil {
		held.free()
		finish(err)
	}
	return nil
}

// packRecords does not copy records that are already in the arena.
func packRecords(c *carrier, batch Batch) *kernelpb.Block {
	if block := packInPlace(c, batch.records); block != nil {
		return block
	}
	return packBlock(c, batch.records)
}

// sharedArena returns the arena once the kernel process is known to have mapped it.
func (c *client) sharedArena() *arena {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared {
		return c.arena
	}
	return nil
}

// submit numbers the batch and queues its results before it is sent: the reply may
// arrive at once.
func (c *client) submit(request *kernelpb.ProcessRequest, batch awaited) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil && c.stream == nil {
		c.broken = c.openStream()
	}
	if c.broken != nil {
		return c.broken
	}
	c.sequence++
	request.Sequence, request.Consumed = c.sequence, c.consumed
	batch.sequence = c.sequence
	c.pending = append(c.pending, batch)
	c.stream.add(request)
	return nil
}

func (c *client) openStream() error {
	if !c.arena.hold() { // for receive, which may outlive the process
		return errClosed
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.rpc.Process(ctx)
	if err != nil {
		cancel()
		c.arena.drop()
		return c.explain(err)
	}
	c.stream = &outgoing{stream: stream, cancel: cancel, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go c.stream.send()
	go c.receive(c.stream)
	return nil
}

// receive completes the results in the order in which the batches were sent.
func (c *client) receive(s *outgoing) {
	defer c.arena.drop()
	defer close(s.ended)
	defer s.cancel()
	for {
		reply, err := s.stream.Recv()
		if err != nil {
			c.fail(c.streamError(err))
			return
		}
		c.mu.Lock()
		if len(c.pending) == 0 || c.pending[0].sequence != reply.GetSequence() {
			c.mu.Unlock()
			c.fail(fault.New(fault.Crash, "kernel answered a batch that was not sent"))
			return
		}
		head := c.pending[0]
		c.pending = c.pending[1:]
		c.mu.Unlock()
		err = c.fill(head.results, reply)
		unfit := makesUnfit(err)
		if unfit {
			c.markUnfit(err)
		}
		head.complete(err)
		if unfit {
			c.fail(err)
			return
		}
	}
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
func (c *client) markUnfit(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = err
	}
}

// streamError returns why the stream ended. If Close ended it and no batch is pending,
// there is no cause to wait for.
func (c *client) streamError(err error) error {
	c.mu.Lock()
	quiet := errors.Is(err, io.EOF) && len(c.pending) == 0 && c.broken != nil
	c.mu.Unlock()
	if quiet {
		return errClosed
	}
	return c.explain(err)
}

func (c *client) fill(results *Results, reply *kernelpb.ProcessReply) error {
	c.noteSources(reply.GetSources())
	c.noteWarnings(reply.GetWarnings())
	if err := c.unpackComputing(reply.GetFailure(), fault.Batch); err != nil {
		return err
	}
	err := unpackReply(c.arena, reply, results)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.consumed = reply.GetSequence()
	if reply.GetMemory() != nil {
		c.memory = unpackMemory(reply.GetMemory())
	}
	return err
}

// fail completes all batches in flight, and all future ones, with err.
func (c *client) fail(err error) {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = err
	}
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, p := range pending {
		p.complete(err)
	}
	c.asking.fail(err)
}

// Broken reports whether no further batch can be sent: the process has exited, or has
// failed so that it must be killed and replaced.
func (c *client) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
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
