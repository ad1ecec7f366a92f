package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/view"
	"github.com/gpurun/gpurun/orchestrator"
)

// maxAnswer limits the size of a job's response.
const maxAnswer = 16 << 20

// State is a job and its state.
type State struct {
	Job Info `json:"job"`
	view.View
	// Trouble explains why the rest is missing.
	Trouble string `json:"trouble,omitempty"`
}

// stateTime is how long a job may take to respond before it is shown without its state.
const stateTime = 2 * time.Second

// States gets the states of jobs concurrently: a stopped job must not delay the others.
func States(ctx context.Context, entries []Entry) []State {
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	states := make([]State, len(entries))
	var all sync.WaitGroup
	for i, e := range entries {
		all.Go(func() {
			var err error
			if states[i], err = NewClient(e).State(ctx); err != nil {
				states[i] = State{Job: e.Info, View: view.New(""), Trouble: err.Error()}
			}
		})
	}
	all.Wait()
	return states
}

// Client is a client of one running job.
type Client struct {
	entry Entry
	http  *http.Client
}

// NewClient returns a client of a job. It connects on first use.
func NewClient(e Entry) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}
	return &Client{entry: e, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// State returns the job's state.
func (c *Client) State(ctx context.Context) (s State, err error) {
	return s, c.ask(ctx, http.MethodGet, "", &s)
}

// Steer controls the job and returns its new state: pause, resume, or cancel, which stops it; a
// second cancel stops it immediately.
func (c *Client) Steer(ctx context.Context, verb string) (s State, err error) {
	return s, c.ask(ctx, http.MethodPost, "/"+verb, &s)
}

// Trim asks the job's kernels to release unused memory, and waits until they have.
func (c *Client) Trim(ctx context.Context) ([]orchestrator.Trimmed, error) {
	var answer struct {
		Workers []orchestrator.Trimmed `json:"workers"`
	}
	return answer.Workers, c.ask(ctx, http.MethodPost, "/trim", &answer)
}

// Transport sends requests to the job, whatever their host.
func (c *Client) Transport() http.RoundTripper { return c.http.Transport }

// Send sends a request with a JSON body, which may be nil, to a path of the job's API.
func (c *Client) Send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://job"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.trouble(ctx, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.trouble(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fault.NoAnswer.New("job %s: %s", c.entry.ID, reason(data))
	}
	return data, nil
}

// reason is the text of a refusal.
func reason(body []byte) string {
	var problem struct{ Error string }
	if json.Unmarshal(body, &problem) == nil && problem.Error != "" {
		return problem.Error
	}
	return string(bytes.TrimSpace(body))
}

// ask sends a request to a path below the job's.
func (c *Client) ask(ctx context.Context, method, path string, answer any) error {
	data, err := c.Send(ctx, method, "/api/jobs/"+c.entry.ID+path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fault.NoAnswer.New("job %s sent a response that this gpurun does not understand (a different version?): %w", c.entry.ID, err)
	}
	return nil
}

// trouble explains why there is no response.
func (c *Client) trouble(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fault.NoAnswer.New("job %s is just ending", c.entry.ID)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.NoAnswer.New("job %s (process %d) does not respond: it may be stopped", c.entry.ID, c.entry.PID)
	}
	return fault.NoAnswer.New("connect to job %s: %w", c.entry.ID, err)
}
