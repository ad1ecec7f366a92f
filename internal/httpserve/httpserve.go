// Package httpserve serves HTTP within limits, so that a client that misbehaves cannot use
// up the process that serves it.
package httpserve

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// headerTime limits reading a request's header, readTime the whole request, idleTime
	// the pause until the next.
	headerTime     = 5 * time.Second
	readTime       = 10 * time.Second
	idleTime       = 30 * time.Second
	maxHeaderBytes = 16 << 10
)

// writeTime limits how long a client may take to read a response, from its first byte on, or
// each part of a stream of events. Tests shorten it.
var writeTime = 20 * time.Second

// Serve serves on the listener, with at most n connections at a time; others wait. The
// returned function ends it, and waits briefly for responses in progress.
func Serve(l net.Listener, n int, h http.Handler) (end func()) {
	s := &http.Server{
		Handler: timed(h), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // clients' errors do not belong in the job's output
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(netutil.LimitListener(l, n)) // returns when the listener is closed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-ended
	}
}

// timed gives every response its time to be read.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&timedWriter{ResponseWriter: w}, r)
	})
}

type timedWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *timedWriter) Write(p []byte) (int, error) {
	if !w.begun || w.Header().Get("Content-Type") == "text/event-stream" {
		w.begun = true
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime))
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
