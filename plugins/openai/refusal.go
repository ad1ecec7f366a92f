package openai

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// manyRefusals is how often in a row a server must have refused requests before it counts as
// one that refuses all of them.
const manyRefusals = 8

// pauses is the answer for a record while nothing is sent for a long time.
func (c *client) pauses(h *held) plugins.Answer {
	return plugins.TryLater(h.pause, "%s refuses requests for now (%s); the next one follows in %s", c.base, h.refusal, h.pause.Round(time.Second))
}

// refusesAll returns the answer that stops the job if the server has refused everything for
// too long: the rate limit may be that of a day, or the account may be empty.
func (c *client) refusesAll(refusal string) *plugins.Answer {
	if refusals, long := c.limiter.refuses(); refusals < manyRefusals || long < c.maxOutage {
		return nil
	}
	return answer(plugins.FailedBy(plugins.Stop(fmt.Errorf("%s has refused every request for %s: %s", c.base, c.maxOutage, refusal))))
}
