package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
	"github.com/gpurun/gpurun/plugins/symptom"
)

// server is the kernel process's end of the connection: it calls the author's kernel
// according to the contract, one call at a time.
type server struct {
	kernelpb.UnimplementedKernelServer
	kernel Kernel
	plain  sync.Once

	calls    sync.Mutex // held during each call to the kernel
	inFlight int
	onCPU    bool // the device passed to Open is a CPU
	inputs   []string

	arena    *protocol.Arena // nil if records and results are sent inline
	reporter *reporter
	long     bool // the last batch took longBatch or more
}

// longBatch is the duration from which a batch needs watchCalls.
const longBatch = 100 * time.Millisecond

func newServer(k Kernel, a *protocol.Arena) *server {
	return &server{kernel: k, inFlight: 1, arena: a, reporter: newReporter(k)}
}

func (s *server) Describe(ctx context.Context, request *kernelpb.DescribeRequest) (*kernelpb.DescribeReply, error) {
	s.plain.Do(restoreStderr)
	s.calls.Lock()
	defer s.calls.Unlock()
	info, err := s.kernel.Describe(ctx, Config(request.GetConfig()))
	_, answers := s.kernel.(Concurrent)
	if err == nil && info.Concurrency > 0 && !answers {
		err = fault.KernelConfig.New("the kernel declares a concurrency of %d, but does not implement plugins.Concurrent", info.Concurrency)
	}
	if err != nil {
		return &kernelpb.DescribeReply{Failure: packFailure(err)}, nil
	}
	info = info.Bounded()
	s.inFlight, s.inputs = max(1, info.InFlight)+info.Ahead, info.Inputs
	return &kernelpb.DescribeReply{Info: encode(info), Arena: s.arena != nil}, nil
}

func (s *server) Open(ctx context.Context, request *kernelpb.OpenRequest) (*kernelpb.OpenReply, error) {
	s.plain.Do(restoreStderr)
	s.calls.Lock()
	defer s.calls.Unlock()
	var device Device
	if err := json.Unmarshal(request.GetDevice(), &device); err != nil {
		return nil, err
	}
	s.onCPU = !device.GPU
	err := s.kernel.Open(ctx, device, Config(request.GetConfig()))
	return &kernelpb.OpenReply{Failure: packFailure(symptom.Classify(fault.Incompatible, err, s.onCPU)), Report: s.reporter.next()}, nil
}

func (s *server) Close(context.Context, *kernelpb.CloseRequest) (*kernelpb.CloseReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return &kernelpb.CloseReply{Failure: packFailure(s.kernel.Close())}, nil
}

// started is a batch that was passed to the kernel.
type started struct {
	sequence uint64
	batch    Batch
	results  *Results
	carrier  *protocol.Carrier
	reply    *kernelpb.ProcessReply // once the results are complete
}

// Process calls the kernel for each batch and sends the results in the same order as they
// become complete. It does not recover from a panic in the kernel: the process dies with
// the trace on stderr, and the worker restarts it.
func (s *server) Process(stream kernelpb.Kernel_ProcessServer) error {
	s.plain.Do(restoreStderr)
	s.calls.Lock()
	size, inputs := s.inFlight, s.inputs
	s.calls.Unlock()
	open := make(chan *started, size-1) // in order of arrival; the sender waits for another
	sent := make(chan error, 1)
	out := &replies{reporter: s.reporter}
	go func() { sent <- out.sendInOrder(stream, open) }()

	err := s.receive(stream, inputs, open, out)
	close(open)
	return errors.Join(err, <-sent)
}

func (s *server) receive(stream kernelpb.Kernel_ProcessServer, inputs []string, open chan<- *started, out *replies) error {
	ctx := stream.Context()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out.consumed(request.GetConsumed())
		batch, err := s.unpackBatch(request, inputs)
		if err != nil {
			return err
		}
		batch = batch.WithIsolation(time.Duration(request.GetIsolateMs()) * time.Millisecond)
		next := &started{sequence: request.GetSequence(), batch: batch, results: NewResults(batch.Len()), carrier: &protocol.Carrier{Arena: s.arena, Least: protocol.InlineBelow}}
		next.results.copyOut = next.pack
		// Wait until the kernel has room for another batch.
		select {
		case open <- next:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.submit(ctx, next)
	}
}

// unpackBatch does not copy the records and files: the worker does not change them until
// the results are complete.
func (s *server) unpackBatch(request interface {
	GetRecords() *kernelpb.Block
	GetSpans() []uint32
	GetFetched() []*kernelpb.Fetched
}, inputs []string) (Batch, error) {
	records, err := protocol.UnpackInPlace(request.GetRecords(), s.arena)
	if err != nil {
		return Batch{}, err
	}
	batch, err := NewBatch(records).withSpans(inputs, request.GetSpans())
	if err != nil {
		return Batch{}, err
	}
	return batch.withFetched(request.GetFetched(), s.arena)
}

func (s *server) submit(ctx context.Context, b *started) {
	s.calls.Lock()
	defer s.calls.Unlock()
	b.results.onCPU = s.onCPU
	// Make a write to a record panic, so that the crash prints only the trace of the
	// kernel instead of all goroutines.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.explainFault()
	if s.long {
		protocol.WatchCalls()
	}
	began := time.Now()
	submit(ctx, s.kernel, b.batch, b.results)
	s.long = time.Since(began) >= longBatch
}

// explainFault turns a panic caused by a write to a record into one that says so.
func (s *server) explainFault() {
	p := recover()
	if p == nil {
		return
	}
	if e, ok := p.(interface{ Addr() uintptr }); ok && s.arena.IsTheirs(e.Addr()) {
		panic("the kernel wrote to a record, whose memory is read-only: copy a record before changing it")
	}
	panic(p)
}
