package process

import (
	"context"

	"google.golang.org/grpc"
)

// flow is a stream of requests to a kernel process and of its replies. Sending may block on
// flow control, so it has a goroutine of its own.
type flow struct {
	wake  chan struct{} // signals that there is something to send, or nothing more
	ended chan struct{} // closed when the last reply has been received
}

// startFlow opens a stream. next returns the requests to send, and receive handles a reply; an
// error of receive fails everything. isIdle reports whether nothing waits for a reply. The caller
// must hold l.mu.
func startFlow[Q, A any](l *link, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Q, A], error),
	next func() []*Q, receive func(*A) error, isIdle func() bool) (*flow, error) {
	if !l.arena.Hold() { // for the replies, which may outlive the process
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := open(ctx)
	if err != nil {
		cancel()
		l.arena.Drop()
		return nil, l.explain(err)
	}
	f := &flow{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		for {
			closed := l.isClosed()
			for _, request := range next() {
				if stream.Send(request) != nil {
					return // the stream has ended: the receiver finds the cause
				}
			}
			if closed {
				_ = stream.CloseSend()
				return
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer l.arena.Drop()
		defer close(f.ended)
		defer cancel()
		for {
			reply, err := stream.Recv()
			switch {
			case err == nil:
				err = receive(reply)
			case l.isClosed() && isIdle(): // there is no cause to wait for
				err = errClosed
			default:
				err = l.explain(err)
			}
			if err != nil {
				l.fail(err)
				return
			}
		}
	}()
	return f, nil
}

func (f *flow) signal() {
	select {
	case f.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// end lets the stream end after what is in flight, once the link is closed, and waits for that.
func (f *flow) end(ctx context.Context) error {
	if f == nil {
		return nil
	}
	f.signal()
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
