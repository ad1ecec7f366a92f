package jobs

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections are served at a time; others wait.
	maxConnections = 64
	// headerTime limits reading a request's header, readTime the whole request, idleTime
	// the pause until the next.
	headerTime     = 5 * time.Second
	readTime       = 10 * time.Second
	idleTime       = 30 * time.Second
	maxHeaderBytes = 16 << 10
)

// Serve serves a registered job's API until the returned function is called, which waits
// briefly for responses in progress.
func (r *Registration) Serve(job Job, events *Events) (end func()) {
	s := newHTTPServer(NewHandler(r.Entry, job, events))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(limit(r.listener, maxConnections)) // returns when the listener is closed
	}()
	return func() {
		events.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-ended
		r.Close()
	}
}

// newHTTPServer limits the resources that a misbehaving client can use.
func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // clients' errors do not belong in the job's output
	}
}

// limit allows n open connections at a time.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
