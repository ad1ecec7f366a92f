package plugins

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpurun/gpurun/plugins/kernelpb"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// Stream calls the kernel for each record, concurrently, and sends the answers as they
// come. Like Process it does not recover from a panic.
func (s *server) Stream(stream kernelpb.Kernel_StreamServer) error {
	s.plain.Do(restoreStderr)
	kernel, ok := s.kernel.(Concurrent)
	if !ok {
		return status.Error(codes.Unimplemented, "the kernel computes batches")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s.calls.Lock()
	calls := &answerCalls{
		server: s, kernel: kernel, inputs: s.inputs, onCPU: s.onCPU,
		cancels: make(map[uint64]context.CancelFunc), wake: make(chan struct{}, 1), crew: protocol.NewCrew(ctx),
	}
	s.calls.Unlock()
	sent := make(chan error, 1)
	go func() { sent <- calls.send(stream) }()
	err := calls.receive(stream)
	calls.running.Wait()
	calls.end()
	return errors.Join(err, <-sent)
}

// answerCalls is the kernel's side of a stream of records.
type answerCalls struct {
	server  *server
	kernel  Concurrent
	inputs  []string
	onCPU   bool
	running sync.WaitGroup
	crew    protocol.Crew
	wake    chan struct{} // signals answers and the end

	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // of the records in flight
	took    time.Duration                 // about how long an answer takes
	unsent  []*kernelpb.Answer
	ended   bool
}

func (a *answerCalls) receive(stream kernelpb.Kernel_StreamServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		batch, err := a.server.unpackBatch(request, a.inputs)
		if err != nil {
			return err
		}
		for i := range batch.Len() {
			a.start(stream.Context(), request.GetFirst()+uint64(i), batch.At(i))
		}
		for _, number := range request.GetCancel() {
			a.giveUp(number)
		}
	}
}

// start calls the kernel for one record.
func (a *answerCalls) start(ctx context.Context, number uint64, record Record) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.cancels[number] = cancel
	a.mu.Unlock()
	a.running.Add(1)
	started := time.Now()
	a.crew.Do(func() {
		defer a.running.Done()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer a.server.explainFault()
		answer := a.kernel.Answer(ctx, record).Checked(a.onCPU)
		cancel()
		a.answer(number, answer, time.Since(started))
	})
}

func (a *answerCalls) giveUp(number uint64) {
	a.mu.Lock()
	cancel := a.cancels[number]
	a.mu.Unlock()
	if cancel != nil { // otherwise it has just been answered
		cancel()
	}
}

func (a *answerCalls) answer(number uint64, answer Answer, took time.Duration) {
	a.mu.Lock()
	if a.took == 0 {
		a.took = took
	}
	a.took += (took - a.took) / 64
	delete(a.cancels, number)
	a.unsent = append(a.unsent, packAnswer(number, answer))
	a.mu.Unlock()
	a.signal()
}

func (a *answerCalls) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// end ends send after the last answer.
func (a *answerCalls) end() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.signal()
}

// answersBytes is the size from which no further answer goes into a message.
const answersBytes = 4 << 20

// reportEvery is how often a kernel without answers is asked for its report.
const reportEvery = time.Second

// send sends the answers, as many as there are at a time.
func (a *answerCalls) send(stream kernelpb.Kernel_StreamServer) error {
	ticker := time.NewTicker(reportEvery) // a kernel that warns may have nothing to answer meanwhile
	defer ticker.Stop()
	for {
		a.mu.Lock()
		answers, ended := a.unsent, a.ended
		a.unsent = nil
		a.mu.Unlock()
		for len(answers) > 0 {
			n := together(answers)
			if err := stream.Send(&kernelpb.StreamReply{Answers: answers[:n], Report: a.server.reporter.next()}); err != nil {
				return err
			}
			answers = answers[n:]
		}
		if ended {
			return nil
		}
		select {
		case <-a.wake:
			if wait := a.patience(); wait > 0 {
				time.Sleep(wait)
			}
		case <-ticker.C:
			if report := a.server.reporter.next(); report != nil {
				if err := stream.Send(&kernelpb.StreamReply{Report: report}); err != nil {
					return err
				}
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

const (
	// An answer waits for others at most one part in patientShare of the time that it took, and
	// at most mostPatience. Timers are no more precise than leastPatience.
	patientShare  = 100
	mostPatience  = 5 * time.Millisecond
	leastPatience = time.Millisecond
)

// patience returns how long to wait for further answers, so that they go out together: each
// message costs two processes several times what an answer does. It returns 0 unless another
// answer is expected within that time.
func (a *answerCalls) patience() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := min(a.took/patientShare, mostPatience)
	if a.ended || wait < leastPatience || time.Duration(len(a.cancels))*wait < a.took {
		return 0
	}
	return wait
}

// together returns how many of the answers go into the next message, at least one.
func together(answers []*kernelpb.Answer) (n int) {
	size := 0
	for n < len(answers) && (n == 0 || size < answersBytes) {
		for _, line := range answers[n].GetLines() {
			size += len(line)
		}
		n++
	}
	return n
}
