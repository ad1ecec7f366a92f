package plugins

import (
	"context"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// client is the worker's end of the wire: a Kernel whose Process returns as soon
// as the batch is on its way and completes the results when they come back. Its
// caller keeps as many batches in flight as it likes.
type client struct {
	rpc kernelpb.KernelClient
	// explain turns an error of the transport into its cause: why the process
	// on the other side is gone. It may wait for that cause.
	explain func(error) error

	mu       sync.Mutex
	stream   kernelpb.Kernel_ProcessClient
	cancel   context.CancelFunc
	sequence uint64
	pending  []awaited // in order of sending
	broken   error     // why no further batch can be sent
}

type awaited struct {
	sequence uint64
	results  *Results
}

func newClient(rpc kernelpb.KernelClient) *client {
	return &client{rpc: rpc, explain: func(err error) error { return fault.New(fault.Crash, "kernel: %w", err) }}
}

func (c *client) Describe(ctx context.Context, config Config) (Info, error) {
	reply, err := c.rpc.Describe(ctx, &kernelpb.DescribeRequest{Config: config})
	if err != nil {
		return Info{}, c.unary(ctx, err)
	}
	return unpackInfo(reply.GetInfo()), unpackFailure(reply.GetFailure(), fault.Incompatible)
}

func (c *client) Open(ctx context.Context, device Device, config Config) error {
	reply, err := c.rpc.Open(ctx, &kernelpb.OpenRequest{Config: config, Device: packDevice(device)})
	if err != nil {
		return c.unary(ctx, err)
	}
	return unpackFailure(reply.GetFailure(), fault.Incompatible)
}

// Close ends the stream, which is how the kernel learns that no batch follows.
func (c *client) Close() error { return c.close(context.Background()) }

func (c *client) close(ctx context.Context) error {
	c.mu.Lock()
	if c.stream != nil {
		_ = c.stream.CloseSend()
	}
	c.mu.Unlock()
	reply, err := c.rpc.Close(ctx, &kernelpb.CloseRequest{})
	if err != nil {
		return c.unary(ctx, err)
	}
	return unpackFailure(reply.GetFailure(), fault.Incompatible)
}

// unary tells the caller's own deadline from a broken kernel.
func (c *client) unary(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.explain(err)
}

func (c *client) Process(_ context.Context, batch Batch, results *Results) error {
	finish := results.Defer()
	request := &kernelpb.ProcessRequest{Records: packBlock(batch.records)}

	stream, err := c.register(request, results)
	if err != nil {
		finish(err)
		return nil
	}
	// Send fails only when the stream is broken; receive then finds the cause
	// and completes everything pending with it. It may block for want of credit,
	// so it must not hold the lock that receive needs.
	_ = stream.Send(request)
	return nil
}

// register numbers the batch and queues its results before it is sent: the
// answer may be faster than Send's return.
func (c *client) register(request *kernelpb.ProcessRequest, results *Results) (kernelpb.Kernel_ProcessClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil && c.stream == nil {
		c.broken = c.openStream()
	}
	if c.broken != nil {
		return nil, c.broken
	}
	c.sequence++
	request.Sequence = c.sequence
	c.pending = append(c.pending, awaited{sequence: c.sequence, results: results})
	return c.stream, nil
}

func (c *client) openStream() error {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.rpc.Process(ctx)
	if err != nil {
		cancel()
		return c.explain(err)
	}
	c.stream, c.cancel = stream, cancel
	go c.receive(stream)
	return nil
}

// receive completes the results in the order in which the batches were sent.
func (c *client) receive(stream kernelpb.Kernel_ProcessClient) {
	for {
		reply, err := stream.Recv()
		if err != nil {
			c.fail(c.explain(err))
			return
		}
		c.mu.Lock()
		if len(c.pending) == 0 || c.pending[0].sequence != reply.GetSequence() {
			c.mu.Unlock()
			c.fail(fault.New(fault.Crash, "kernel answered a batch that it was not asked"))
			return
		}
		head := c.pending[0]
		c.pending = c.pending[1:]
		c.mu.Unlock()
		head.results.complete(fill(head.results, reply))
	}
}

func fill(results *Results, reply *kernelpb.ProcessReply) error {
	if err := unpackFailure(reply.GetFailure(), fault.Batch); err != nil {
		return err
	}
	return unpackReply(reply, results)
}

// fail completes everything in flight with err, and everything to come.
func (c *client) fail(err error) {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = err
	}
	pending := c.pending
	c.pending = nil
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	for _, p := range pending {
		p.results.complete(err)
	}
}

// Broken reports whether no further batch can be sent.
func (c *client) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}
