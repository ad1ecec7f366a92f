// Package keepalive lets HTTP requests follow each other on a connection only while the server
// sends nothing but answers.
//
// HTTP/1.1 does not say which request an answer belongs to. If a server sends anything after an
// answer, net/http takes it for the answer to the next request, unless the connection is idle at
// that moment, and all later answers are shifted by one. With this package, a request uses a
// connection only if nothing has arrived since the last answer. What arrives after the request
// was sent cannot be told from its answer: against such a server, only a connection for each
// request helps.
package keepalive

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
	"syscall"
)

// connection is a connection that can be proved.
type connection struct {
	net.Conn
	raw syscall.RawConn

	mu      sync.Mutex
	changed sync.Cond // reading or closed
	reading bool      // the reader has used all that it read, and no byte has come since
	spent   bool      // no other request may follow
	closed  bool
}

// Dial connects to an address.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a function that connects as dial does, for a transport whose requests use
// [Trace].
func Dialer(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		inner, ok := conn.(syscall.Conn)
		if err != nil || !ok {
			return conn, err
		}
		raw, err := inner.SyscallConn()
		if err != nil {
			return conn, nil // it can be used, not proved
		}
		c := &connection{Conn: conn, raw: raw}
		c.changed.L = &c.mu
		return c, nil
	}
}

// Read reads in two steps: prove must see either that no byte has come, or that Read has it.
func (c *connection) Read(p []byte) (int, error) {
	c.update(func() { c.reading = true })
	_ = c.raw.Read(readable) // the next call returns its error
	c.update(func() { c.reading = false })
	return c.Conn.Read(p)
}

// Close closes the connection.
func (c *connection) Close() error {
	c.update(func() { c.closed = true })
	return c.Conn.Close()
}

func (c *connection) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.changed.Broadcast()
}

// readable reports whether a read of a socket would not wait.
func readable(fd uintptr) bool {
	var one [1]byte
	_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err != syscall.EAGAIN && err != syscall.EINTR
}

// prove closes the connection unless it is quiet: net/http then sends the request on another.
// It must be called before net/http expects an answer. Until then the reader of net/http
// closes the connection itself if it has read too much, and waits for a byte otherwise.
func (c *connection) prove(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { c.update(func() {}) })()
	c.mu.Lock()
	for !c.reading && !c.closed && ctx.Err() == nil {
		c.changed.Wait()
	}
	noisy := c.spent
	_ = c.raw.Control(func(fd uintptr) { noisy = noisy || readable(fd) })
	c.mu.Unlock()
	if noisy {
		_ = c.Close()
	}
}

// Trace returns the context for a request, and a function that keeps other requests from
// following it on its connection; it has to be called before the body of the answer is read to
// its end. HTTP/2 needs neither: its answers name their requests.
func Trace(ctx context.Context) (_ context.Context, last func()) {
	var used *connection
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			conn, fresh := info.Conn, false
			if secure, ok := conn.(*tls.Conn); ok {
				if secure.ConnectionState().NegotiatedProtocol == "h2" {
					return
				}
				conn, fresh = secure.NetConn(), !info.Reused // a fresh one may still get what belongs to TLS
			}
			if used, _ = conn.(*connection); used != nil && !fresh {
				used.prove(ctx)
			}
		}}), func() {
			if used != nil {
				used.update(func() { used.spent = true })
			}
		}
}
