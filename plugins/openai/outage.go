package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

const (
	// pingTimeout is how long the server may take to show that it is there. A busy one
	// needs some time.
	pingTimeout = 10 * time.Second
	// pingValid is how long the answer to a ping counts.
	pingValid = time.Second
	// reachTime is how long Open waits for a server that cannot be reached.
	reachTime = 5 * time.Second
	// firstPing is the wait before the first ping of an outage, longestPing the longest
	// between two.
	firstPing   = time.Second
	longestPing = 15 * time.Second
)

// outage is what is known about a server that cannot be reached. Whether it can depends on
// pings alone and not on records: a record that makes the server close its connection must
// not look like an outage, and an outage must not fail records.
type outage struct {
	asking chan struct{} // has an element while a ping decides

	mu       sync.Mutex
	since    time.Time // zero: the server can be reached
	next     time.Time // when to ping it again
	pings    int
	cause    string
	answered time.Time // the last ping
}

// available reports whether requests can be sent. During an outage, one of them pings the
// server now and then.
func (c *client) available(ctx context.Context) bool {
	o := &c.outage
	o.mu.Lock()
	down, due := !o.since.IsZero(), !time.Now().Before(o.next)
	if down && due { // the others wait meanwhile
		o.next = time.Now().Add(min(longestPing, firstPing<<min(o.pings, 10)))
		o.pings++
	}
	o.mu.Unlock()
	if down && due && c.ping(ctx) == nil {
		o.end()
		return true
	}
	return !down
}

// isLost reports, after a request that failed, whether the server cannot be reached.
func (c *client) isLost(ctx context.Context) bool {
	o := &c.outage
	if known, lost := o.known(); known {
		return lost
	}
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return false
	}
	if known, lost := o.known(); known {
		return lost
	}
	err := c.ping(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil:
		o.end()
		return false
	}
	o.begin(err)
	return true
}

// known returns whether the server is known to be out of reach, or to be there.
func (o *outage) known() (known, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost = !o.since.IsZero()
	return lost || time.Since(o.answered) < pingValid, lost
}

func (o *outage) begin(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.since, o.next, o.pings, o.cause = now, now.Add(firstPing), 1, cause.Error()
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.answered = time.Time{}, time.Now()
}

// tryLater is the answer for a record during an outage. When that has lasted too long, it
// stops the job.
func (c *client) tryLater() plugins.Answer {
	o := &c.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() && time.Since(o.since) >= c.settings.maxOutage {
		return plugins.FailedBy(plugins.Stop(fmt.Errorf("%s could not be reached for %s: %s", c.settings.base, c.settings.maxOutage, o.cause)))
	}
	return plugins.TryLater(max(time.Until(o.next), 10*time.Millisecond), "%s cannot be reached (%s); trying for up to %s", c.settings.base, o.cause, c.settings.maxOutage)
}

// reach checks that there is a server, before any record is sent. A server that the job has
// used may be restarting: its absence is an outage like any other.
func (c *client) reach(ctx context.Context) error {
	for began := time.Now(); ; {
		err := c.ping(ctx)
		switch {
		case err == nil:
			return nil
		case isCertificate(err):
			return c.distrusted(err)
		case ctx.Err() != nil:
			return ctx.Err()
		case c.settings.known:
			c.outage.begin(err)
			return nil
		case time.Since(began) >= min(reachTime, c.settings.maxOutage):
			return fault.ServerUnreachable.New("%s cannot be reached: %w", c.settings.base, err)
		}
		select {
		case <-time.After(reachTime / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ping asks the server for its models. Any answer shows that it is there, except those of
// a gateway without a server.
func (c *client) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	status, _, err := c.models(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not answer within %s", pingTimeout)
	case isCertificate(err):
		return err
	case err != nil:
		return errors.New(c.redact(plain(err)))
	case unavailable(status):
		return fmt.Errorf("it answers %d %s", status, http.StatusText(status))
	}
	return nil
}

// unavailable reports whether a gateway answers so if there is no server behind it.
func unavailable(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// models asks the server which models it has.
func (c *client) models(ctx context.Context) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.settings.base.String()+"/models", nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header = c.header()
	response, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, c.settings.MaxBody))
	return response.StatusCode, body, err
}

// onlyModel returns the model of a server that has one. Adapters of a model do not count.
func (c *client) onlyModel(ctx context.Context) (string, error) {
	status, body, err := c.models(ctx)
	if err != nil {
		return "", bad("model is missing, and the server does not name one: %w", err)
	}
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil {
		hint := ""
		if status == http.StatusNotFound {
			hint = c.settings.elsewhere()
		}
		return "", bad("model is missing, and the server does not name one: /models answers %d %s%s", status, http.StatusText(status), hint)
	}
	var names []string
	for _, model := range list.Data {
		if model.Parent == nil || *model.Parent == "" {
			names = append(names, model.ID)
		}
	}
	switch len(names) {
	case 0:
		return "", bad("model is missing, and the server has none")
	case 1:
		return names[0], nil
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return "", bad("model is missing, and the server has several: %s", strings.Join(names, ", "))
}
