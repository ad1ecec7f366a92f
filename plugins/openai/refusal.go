package openai

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// manyRefusals is how often in a row a server must have refused requests before it counts as
// one that refuses all of them, unless it asks for so long pauses that fewer last too long.
const manyRefusals = 8

// pauses is the answer for a record while nothing is sent for a long time.
func (c *client) pauses(h *held) plugins.Answer {
	return plugins.TryLater(h.pause, "%s refuses requests for now (%s); the next one follows in %s", c.base, h.refusal, h.pause.Round(time.Second))
}

// refusesAll returns the answer that stops the job if the server has refused everything for
// too long: the rate limit may be that of a day, or the account may be empty. after is the pause
// that it asks for.
func (c *client) refusesAll(refusal string, after time.Duration) *plugins.Answer {
	times, long := c.limiter.refuses()
	many := times >= manyRefusals || after > 0 && after >= c.maxOutage/time.Duration(max(times, 1))
	if !many || long < c.maxOutage {
		return nil
	}
	return answer(plugins.FailedBy(plugins.Stop(fmt.Errorf("%s has refused every request for %s: %s", c.base, c.maxOutage, refusal))))
}
