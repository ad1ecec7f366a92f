package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// maxAnswer limits the size of a job's response.
const maxAnswer = 16 << 20

// Status is a job and its status.
type Status struct {
	Job    Entry                 `json:"job"`
	Status orchestrator.Snapshot `json:"status"`
	// Trouble explains why the status is missing.
	Trouble string `json:"trouble,omitempty"`
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

// Status returns the job's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodGet, "")
}

// Pause pauses the job.
func (c *Client) Pause(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodPost, "/pause")
}

// Resume resumes a paused job.
func (c *Client) Resume(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodPost, "/resume")
}

// Cancel stops the job; a second call stops it immediately.
func (c *Client) Cancel(ctx context.Context) (Status, error) {
	return c.do(ctx, http.MethodPost, "/cancel")
}

// Trim asks the job's kernels to release unused memory, and waits until they have.
func (c *Client) Trim(ctx context.Context) ([]orchestrator.Trimmed, error) {
	var answer struct {
		Workers []orchestrator.Trimmed `json:"workers"`
	}
	return answer.Workers, c.ask(ctx, http.MethodPost, "/trim", &answer)
}

// do returns the state of the job, of which a Snapshot has the members that matter here.
func (c *Client) do(ctx context.Context, method, what string) (Status, error) {
	s := Status{Job: c.entry}
	err := c.ask(ctx, method, what, &s.Status)
	return s, err
}

// Transport sends requests to the job, whatever their host.
func (c *Client) Transport() http.RoundTripper { return c.http.Transport }

// Get reads a path of the job's API.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.send(ctx, http.MethodGet, path, nil)
}

// Put writes JSON to a path of the job's API.
func (c *Client) Put(ctx context.Context, path string, body []byte) error {
	_, err := c.send(ctx, http.MethodPut, path, body)
	return err
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
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
		return nil, fault.New(fault.Conflict, "job %s: %s", c.entry.ID, reason(data))
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

// ask sends a request to a path below that of the job.
func (c *Client) ask(ctx context.Context, method, path string, answer any) error {
	data, err := c.send(ctx, method, "/api/jobs/"+c.entry.ID+path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fault.New(fault.Conflict, "job %s sent a response that this gpurun does not understand (a different version?): %w", c.entry.ID, err)
	}
	return nil
}

// trouble explains why there is no response.
func (c *Client) trouble(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fault.New(fault.Conflict, "job %s is just ending", c.entry.ID)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Conflict, "job %s (process %d) does not respond: it may be stopped", c.entry.ID, c.entry.PID)
	}
	return fault.New(fault.Conflict, "connect to job %s: %w", c.entry.ID, err)
}
