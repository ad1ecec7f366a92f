package plugins

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins/kernelpb"
)

// server is the kernel process's end of the wire: it calls the author's kernel
// as the contract says, one call at a time.
type server struct {
	kernelpb.UnimplementedKernelServer
	kernel Kernel
	plain  sync.Once

	calls    sync.Mutex // held while the kernel is called
	inFlight int
	onCPU    bool // the device of Open is none of CUDA's
	inputs   []string

	arena   *arena // nil: records and results come inline
	sources *sourceFeed
	long    bool // the last batch was long
}

// longBatch is from which time on a batch is worth watching: see watchCalls.
const longBatch = 100 * time.Millisecond

func newServer(k Kernel, a *arena) *server {
	return &server{kernel: k, inFlight: 1, arena: a, sources: newSourceFeed(k)}
}

func (s *server) Describe(ctx context.Context, request *kernelpb.DescribeRequest) (*kernelpb.DescribeReply, error) {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	defer s.calls.Unlock()
	info, err := s.kernel.Describe(ctx, Config(request.GetConfig()))
	if err != nil {
		return &kernelpb.DescribeReply{Failure: packFailure(err)}, nil
	}
	s.inFlight, s.inputs = max(1, inFlight(info)), info.Inputs
	return &kernelpb.DescribeReply{Info: packInfo(info), Arena: s.arena != nil}, nil
}

func (s *server) Open(ctx context.Context, request *kernelpb.OpenRequest) (*kernelpb.OpenReply, error) {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	defer s.calls.Unlock()
	device := unpackDevice(request.GetDevice())
	s.onCPU = !device.GPU
	err := s.kernel.Open(ctx, device, Config(request.GetConfig()))
	return &kernelpb.OpenReply{Failure: packFailure(classify(fault.Incompatible, err, s.onCPU)), Sources: s.sources.next()}, nil
}

func (s *server) Close(context.Context, *kernelpb.CloseRequest) (*kernelpb.CloseReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return &kernelpb.CloseReply{Failure: packFailure(s.kernel.Close())}, nil
}

// started is a batch that the kernel was given.
type started struct {
	sequence uint64
	batch    Batch
	results  *Results
	carrier  *carrier
	reply    *kernelpb.ProcessReply // once the results are complete
}

// Process calls the kernel for each batch and sends the results in the same
// order as they become complete. A panic of the kernel is not kept from its end: the
// process dies with its trace on stderr, and is started afresh.
func (s *server) Process(stream kernelpb.Kernel_ProcessServer) error {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	size, inputs := s.inFlight, s.inputs
	s.calls.Unlock()
	open := make(chan *started, size) // in order of arrival
	room := make(chan struct{}, size)
	sent := make(chan error, 1)
	out := &replies{arena: s.arena, reporter: reporterOf(s.kernel), sources: s.sources, warnings: newWarningFeed(s.kernel)}
	go func() { sent <- out.sendInOrder(stream, open, room) }()

	err := s.receive(stream, inputs, open, room, out)
	close(open)
	return errors.Join(err, <-sent)
}

func (s *server) receive(stream kernelpb.Kernel_ProcessServer, inputs []string, open chan<- *started, room chan<- struct{}, out *replies) error {
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
		// The kernel gets the next batch only when it has room for it.
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		open <- s.submit(ctx, request.GetSequence(), batch)
	}
}

// unpackBatch gives the kernel the records where they lie: they are the worker's,
// who leaves them alone until the results are there.
func (s *server) unpackBatch(request *kernelpb.ProcessRequest, inputs []string) (Batch, error) {
	records, err := unpackInPlace(request.GetRecords(), s.arena)
	if err != nil {
		return Batch{}, err
	}
	return NewBatch(records).withSpans(inputs, request.GetSpans())
}

func (s *server) submit(ctx context.Context, sequence uint64, batch Batch) *started {
	s.calls.Lock()
	defer s.calls.Unlock()
	r := NewResults(batch.Len())
	b := &started{sequence: sequence, batch: batch, results: r, carrier: &carrier{arena: s.arena}}
	r.onCPU, r.take = s.onCPU, b.pack
	// A kernel that writes to a record dies of it with a panic, whose trace is its
	// own, and not with the traces of all goroutines.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.explainFault()
	if s.long {
		watchCalls()
	}
	began := time.Now()
	submit(ctx, s.kernel, batch, r)
	s.long = time.Since(began) >= longBatch
	return b
}

// explainFault says of a panic that it was for a write to a record.
func (s *server) explainFault() {
	p := recover()
	if p == nil {
		return
	}
	if e, ok := p.(interface{ Addr() uintptr }); ok && s.arena.isTheirs(e.Addr()) {
		panic("the kernel wrote to a record, whose memory is not its own: it must change a copy")
	}
	panic(p)
}
