package server

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

// maxAnswer bounds what is read of a job's answer.
const maxAnswer = 16 << 20

// Client talks to one running job.
type Client struct {
	entry Entry
	http  *http.Client
}

// NewClient returns a client of a job. It connects when it is used.
func NewClient(e Entry) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}
	return &Client{entry: e, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks how the job is.
func (c *Client) Status(ctx context.Context) (JobStatus, error) {
	return c.do(ctx, http.MethodGet, "status")
}

// Pause lets it pause.
func (c *Client) Pause(ctx context.Context) (JobStatus, error) {
	return c.do(ctx, http.MethodPost, "pause")
}

// Resume lets it go on.
func (c *Client) Resume(ctx context.Context) (JobStatus, error) {
	return c.do(ctx, http.MethodPost, "resume")
}

// Cancel stops it; a second time at once.
func (c *Client) Cancel(ctx context.Context) (JobStatus, error) {
	return c.do(ctx, http.MethodPost, "cancel")
}

// Trim asks its kernels to give memory back, and waits until they have.
func (c *Client) Trim(ctx context.Context) ([]orchestrator.Trimmed, error) {
	var answer struct {
		Workers []orchestrator.Trimmed `json:"workers"`
	}
	return answer.Workers, c.ask(ctx, http.MethodPost, "trim", &answer)
}

func (c *Client) do(ctx context.Context, method, what string) (s JobStatus, err error) {
	err = c.ask(ctx, method, what, &s)
	return s, err
}

func (c *Client) ask(ctx context.Context, method, what string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://job/v1/"+what, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.trouble(ctx, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.trouble(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		return fault.New(fault.Conflict, "job %s: %s", c.entry.ID, bytes.TrimSpace(data))
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fault.New(fault.Conflict, "job %s answers what this gpurun does not understand (is it of another version?): %w", c.entry.ID, err)
	}
	return nil
}

// trouble says why there is no answer.
func (c *Client) trouble(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return fault.New(fault.Conflict, "job %s ends just now", c.entry.ID)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Conflict, "job %s (process %d) does not answer: it may be stopped", c.entry.ID, c.entry.PID)
	}
	return fault.New(fault.Conflict, "ask job %s: %w", c.entry.ID, err)
}
