package server

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
	// maxConnections are served at a time; others wait.
	maxConnections = 64
	// headerTime is how long a client may take to say what it wants, readTime with
	// the body, idleTime how long it may then say nothing.
	headerTime     = 5 * time.Second
	readTime       = 10 * time.Second
	idleTime       = 30 * time.Second
	maxHeaderBytes = 16 << 10
)

// Serve answers for a registered job until the returned function is called, which
// lets answers that are being written go out first, for a moment.
func (r *Registration) Serve(job Job, events *Events) (end func()) {
	s := newHTTPServer(NewHandler(r.Entry, job, events))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(limit(r.listener, maxConnections)) // its error is that it was closed
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

// newHTTPServer bounds what a client can cost, however it behaves.
func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // a client's misbehaviour is not the job's news
	}
}

// limit lets so many connections be open at a time.
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
