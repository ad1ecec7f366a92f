package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// firstPoll is the pause between the first two questions whether the server is ready,
	// longestPoll that between later ones.
	firstPoll   = 50 * time.Millisecond
	longestPoll = time.Second
	// pollTimeout is how long the answer may take.
	pollTimeout = 5 * time.Second
	// reportTime is what is left of the time for Open to report that the server is not
	// ready.
	reportTime = 2 * time.Second
)

// healthPaths show whether a server is ready. Servers without the first have the second.
var healthPaths = []string{"/health", "/v1/models"}

// awaitReady waits until the server is ready, or until most of the time of ctx is over.
func (s *server) awaitReady(ctx context.Context) error {
	limit := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit-min(reportTime, limit/10))
		defer cancel()
	}
	client := s.httpClient()
	defer client.CloseIdleConnections()
	var why error
	for pause := firstPoll; ; pause = min(longestPoll, pause*3/2) {
		switch err := healthy(ctx, client, s.place.url); {
		case err == nil && !s.isLost():
			return nil
		case why == nil || ctx.Err() == nil: // that the time is over is not the reason
			why = err
		}
		select {
		case <-s.lost.Done():
			if foreign := s.foreign.Load(); foreign != nil {
				return fault.PortTaken.New("port %d, which gpurun chose for the server, belongs to a process of user %s that gpurun did not start: no record was sent; write %s instead of %s in the command", s.place.port, foreign.uid, socketHolder, portHolder)
			}
			return fault.ServerNotReady.New("%s, before it was ready", s.ended()).WithDetail(s.words.String())
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return s.notReady(limit.Round(time.Second), why)
			}
			return ctx.Err()
		}
	}
}

// notReady is the error of a server that did not become ready.
func (s *server) notReady(limit time.Duration, why error) error {
	s.kill("was not ready in time")
	return fault.ServerNotReady.New("the server at %s was not ready within %s: %w", s.place, limit, why).
		Set("open-timeout").WithDetail(s.words.String())
}

// wasTaken reports whether the server was lost because another program has its port.
func (s *server) wasTaken() bool {
	return s.foreign.Load() != nil || s.isLost() && strings.Contains(strings.ToLower(s.words.String()), "address already in use")
}

func (s *server) httpClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = s.dial
	return &http.Client{Transport: transport, Timeout: pollTimeout}
}

// healthy returns nil if the server says that it is ready. One that wants a key at the last
// path is ready, too.
func healthy(ctx context.Context, client *http.Client, base string) error {
	for i, path := range healthPaths {
		status, err := get(ctx, client, base+path)
		switch {
		case err != nil:
			return err
		case status == http.StatusOK, i == len(healthPaths)-1 && status < 500:
			return nil
		case status >= 500:
			return fmt.Errorf("%s answers %d %s", path, status, http.StatusText(status))
		}
	}
	return errors.New("it does not say so")
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(req)
	if err != nil {
		return 0, rootCause(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, nil
}

// rootCause returns an error without the method and URL that net/http adds.
func rootCause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
