package process

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// client is the worker's end of the connection: a Kernel whose Process returns
// immediately and completes the results when they arrive. The caller decides how many
// batches it keeps in flight.
type client struct {
	*link
	batches batches
	records asking
	within  *within // a concurrent kernel in this process, nil otherwise
}

// maxInputs is the most that one scan can look for, less what the worker itself needs.
const maxInputs = 60

func newClient(rpc kernelpb.KernelClient) *client {
	c := &client{link: &link{rpc: rpc, explain: func(err error) error { return fault.KernelCrashed.New("kernel: %w", err) }}}
	c.fail, c.batches.link, c.records.link = c.failAll, c.link, c.link
	return c
}

func (c *client) Describe(ctx context.Context, config plugins.Config) (plugins.Info, error) {
	reply, err := c.rpc.Describe(ctx, &kernelpb.DescribeRequest{Config: config})
	if err != nil {
		return plugins.Info{}, c.unary(ctx, err)
	}
	info, err := unpackInfo(reply.GetInfo())
	if err != nil {
		return info, err
	}
	if len(info.Inputs) > maxInputs {
		return info, fault.KernelConfig.New("the kernel declares %d inputs; the limit is %d", len(info.Inputs), maxInputs)
	}
	if err := checkConcurrency(info); err != nil {
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

func (c *client) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	c.mu.Lock()
	c.onCPU = !device.GPU
	c.mu.Unlock()
	described, err := json.Marshal(device)
	if err != nil {
		return err
	}
	reply, err := c.rpc.Open(ctx, &kernelpb.OpenRequest{Config: config, Device: described})
	if err != nil {
		return c.unary(ctx, err)
	}
	c.addReport(reply.GetReport())
	return c.unpackComputing(reply.GetFailure(), fault.Incompatible)
}

// Close ends the stream, which tells the kernel that no batch follows.
func (c *client) Close() error { return c.close(context.Background()) }

func (c *client) close(ctx context.Context) error {
	c.markUnfit(errClosed)
	c.mu.Lock()
	c.closed = true
	flows := []*flow{c.records.flow, c.batches.flow}
	c.mu.Unlock()
	// The kernel handles one call at a time: wait for what is in flight first.
	for _, f := range flows {
		if err := f.end(ctx); err != nil {
			return err
		}
	}
	reply, err := c.rpc.Close(ctx, &kernelpb.CloseRequest{})
	if err != nil {
		return c.unary(ctx, err)
	}
	return unpackFailure(reply.GetFailure(), fault.Incompatible)
}

// errClosed reports a batch submitted after Close, which is a mistake of the caller.
var errClosed = fault.KernelCrashed.New("kernel is closed")

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
func (c *client) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	finish := results.Defer()
	held := &protocol.Carrier{Arena: c.sharedArena()}
	request := &kernelpb.ProcessRequest{IsolateMs: uint32(min(max(batch.Isolation().Milliseconds(), 0), math.MaxUint32))}
	request.Records, request.Spans, request.Fetched = c.pack(held, batch.Records(), batch.At)
	if size := max(held.Total, uint64(proto.Size(request))); size > protocol.MaxMessage {
		held.Free()
		finish(fault.TooLarge.New("a batch of %d bytes exceeds the limit of %d", size, protocol.MaxMessage))
		return nil
	}
	next := awaited{results: results, finish: finish, carrier: held}
	if err := c.batches.submit(request, next); err != nil {
		next.complete(err)
	}
	return nil
}

// failAll completes all batches and records in flight, and all future ones, with err.
func (c *client) failAll(err error) {
	c.markUnfit(err)
	c.mu.Lock()
	pending := c.batches.pending
	c.batches.pending = nil
	c.mu.Unlock()
	for _, p := range pending {
		p.complete(err)
	}
	c.records.fail(err)
}

// Answer sends a record to the kernel process and waits for its answer. If ctx is done
// first, it asks the kernel to give the record up and waits for the answer to that. The
// error of the answer is a fault of kind Crash if the process ends meanwhile, and
// [ErrUnresponsive] if the kernel does not give the record up.
func (c *client) Answer(ctx context.Context, record plugins.Record) plugins.Answer {
	if c.within != nil {
		return c.within.answer(ctx, record).Checked(c.isOnCPU())
	}
	answer := make(chan plugins.Answer, 1)
	number, err := c.records.ask(record, 0, func(a plugins.Answer, _ bool) { answer <- a })
	if err != nil {
		return plugins.FailedBy(err)
	}
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
	}
	c.records.expire(number)
	return <-answer
}

// Ask is Answer without a goroutine that waits: it calls answered once, which must not
// block. After limit, it gives up a record without an answer; expired reports that.
func (c *client) Ask(record plugins.Record, limit time.Duration, answered func(a plugins.Answer, expired bool)) {
	if c.within != nil {
		c.within.ask(record, limit, c.isOnCPU(), answered)
		return
	}
	if _, err := c.records.ask(record, limit, answered); err != nil {
		answered(plugins.FailedBy(err), false)
	}
}

// Broken reports whether no further batch can be sent: the process has exited, or has
// failed so that it must be killed and replaced.
func (c *client) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

// Report returns what the kernel process has reported so far.
func (c *client) Report() plugins.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.told
	r.Sources, r.Warnings = slices.Clip(r.Sources), slices.Clip(r.Warnings)
	return r
}

// Trim asks the kernel to release cached memory, and returns what its framework held
// before and after.
func (c *client) Trim(ctx context.Context) (before, after plugins.FrameworkMemory, err error) {
	reply, err := c.rpc.Trim(ctx, &kernelpb.TrimRequest{})
	if status.Code(err) == codes.Unimplemented { // a kernel in another language
		return before, after, nil
	}
	if err != nil {
		return before, after, c.unary(ctx, err)
	}
	_, _ = json.Unmarshal(reply.GetBefore(), &before), json.Unmarshal(reply.GetAfter(), &after) // empty if unknown
	c.mu.Lock()
	c.told.Memory = after
	c.mu.Unlock()
	return before, after, unpackFailure(reply.GetFailure(), fault.Batch)
}

// Memory is shared memory for the records of a batch; see [protocol.Memory].
type Memory = protocol.Memory

// Alloc allocates at least n bytes of memory that the kernel process can see. It returns
// nil if there is no room, or no shared memory at all. It is safe for concurrent use.
func (p *Process) Alloc(n int) *Memory { return p.sharedArena().Alloc(n) }

// checkConcurrency rejects a description that contradicts itself.
func checkConcurrency(info plugins.Info) error {
	refuse := func(what string) error {
		return fault.KernelConfig.New("the kernel declares a concurrency of %d, which does not combine with %s", info.Concurrency, what)
	}
	switch {
	case info.Concurrency < 0 || info.Concurrency > plugins.MaxConcurrency:
		return fault.KernelConfig.New("the kernel declares a concurrency of %d; it must be between 1 and %d", info.Concurrency, plugins.MaxConcurrency)
	case info.Concurrency > 0 && info.InFlight > 0:
		return refuse("batches in flight (Info.InFlight)")
	case info.Concurrency > 0 && info.GroupBy != "":
		return refuse("grouping records (Info.GroupBy)")
	}
	return nil
}
