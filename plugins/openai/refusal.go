package openai

import (
	"fmt"
	"sync"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// refusals counts the requests in a row that the server has refused. The worker reduces what it
// sends; this only decides when to stop.
type refusals struct {
	mu    sync.Mutex
	times int
	since time.Time
}

// refuses follows what becomes of a request; instead is nil if the server's answer was good. It
// returns the answer that stops the job if the server has refused everything for too long: the
// rate limit may be a daily one, or the account may be empty.
func (c *client) refuses(instead *plugins.Answer) *plugins.Answer {
	r := &c.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case instead == nil || instead.Verdict == plugins.Failed:
		r.times = 0
	case instead.Server == plugins.ServerRefuses:
		if r.times++; r.times == 1 {
			r.since = time.Now()
		}
		if time.Since(r.since) >= c.settings.maxOutage {
			return new(plugins.FailedBy(plugins.Stop(fmt.Errorf("%s has refused every request for %s: %s", c.settings.base, c.settings.maxOutage, instead.Message))))
		}
	}
	return nil
}
