package plugins

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

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
}

func newServer(k Kernel) *server { return &server{kernel: k, inFlight: 1} }

func (s *server) Describe(ctx context.Context, request *kernelpb.DescribeRequest) (*kernelpb.DescribeReply, error) {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	defer s.calls.Unlock()
	info, err := s.kernel.Describe(ctx, Config(request.GetConfig()))
	if err != nil {
		return &kernelpb.DescribeReply{Failure: packFailure(err)}, nil
	}
	s.inFlight = max(1, inFlight(info))
	return &kernelpb.DescribeReply{Info: packInfo(info)}, nil
}

func (s *server) Open(ctx context.Context, request *kernelpb.OpenRequest) (*kernelpb.OpenReply, error) {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	defer s.calls.Unlock()
	device := unpackDevice(request.GetDevice())
	s.onCPU = !device.GPU
	err := s.kernel.Open(ctx, device, Config(request.GetConfig()))
	return &kernelpb.OpenReply{Failure: packFailure(classify(fault.Incompatible, err, s.onCPU))}, nil
}

func (s *server) Close(context.Context, *kernelpb.CloseRequest) (*kernelpb.CloseReply, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return &kernelpb.CloseReply{Failure: packFailure(s.kernel.Close())}, nil
}

// started is a batch that Process has returned from.
type started struct {
	sequence uint64
	results  *Results
}

// Process calls the kernel for each batch and sends the results in the same
// order as they become complete. A panic of the kernel is not caught: the
// process dies with its trace on stderr, and is started afresh.
func (s *server) Process(stream kernelpb.Kernel_ProcessServer) error {
	s.plain.Do(speakPlainly)
	s.calls.Lock()
	size := s.inFlight
	s.calls.Unlock()
	open := make(chan started, size) // in order of arrival
	room := make(chan struct{}, size)
	sent := make(chan error, 1)
	go func() { sent <- sendInOrder(stream, open, room) }()

	err := s.receive(stream, open, room)
	close(open)
	return errors.Join(err, <-sent)
}

func (s *server) receive(stream kernelpb.Kernel_ProcessServer, open chan<- started, room chan<- struct{}) error {
	ctx := stream.Context()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		records, err := unpackBlock(request.GetRecords())
		if err != nil {
			return err
		}
		// The kernel gets the next batch only when it has room for it.
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		open <- started{sequence: request.GetSequence(), results: s.submit(ctx, NewBatch(records))}
	}
}

func (s *server) submit(ctx context.Context, batch Batch) *Results {
	s.calls.Lock()
	defer s.calls.Unlock()
	r := NewResults(batch.Len())
	r.onCPU = s.onCPU
	submit(ctx, s.kernel, batch, r)
	return r
}

func sendInOrder(stream kernelpb.Kernel_ProcessServer, open <-chan started, room <-chan struct{}) error {
	var failed error
	for batch := range open {
		err := batch.results.Wait(stream.Context())
		<-room
		if failed != nil {
			continue // nobody listens; keep the kernel's loop moving
		}
		failed = stream.Send(replyTo(batch, err))
	}
	return failed
}

func replyTo(batch started, err error) *kernelpb.ProcessReply {
	if err != nil {
		return &kernelpb.ProcessReply{Sequence: batch.sequence, Failure: packFailure(err)}
	}
	reply := packReply(batch.sequence, batch.results)
	if size := proto.Size(reply); size > maxMessage {
		err := fault.New(fault.Batch, "kernel returned %d bytes for one batch; the limit is %d", size, maxMessage)
		return &kernelpb.ProcessReply{Sequence: batch.sequence, Failure: packFailure(err)}
	}
	return reply
}
