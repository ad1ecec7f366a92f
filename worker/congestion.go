package worker

import (
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// congestion decides how many requests a server gets at a time, from what its answers show. The
// limit starts at its maximum. When the server has too much to do, the limit is halved, once for
// all requests that were in flight then. Each success raises it by a fraction, so that a full
// round of successes raises it by one. While the server refuses requests, all of them pause as
// long as it asks, and longer each time that it serves none: a limit per minute must not use up
// the attempts of many records within seconds.
//
// The caller counts the requests.
type congestion struct {
	most, limit float64
	round       int       // of the requests that are in flight together: how often the limit was halved
	hold        time.Time // no request starts before
	refusals    int       // rounds in a row in which the server refused requests and served none
}

// newCongestion returns that of a server with at most this number of requests in flight.
func newCongestion(most int) congestion {
	return congestion{most: float64(most), limit: float64(most)}
}

const (
	// firstPause is the least pause after the first refusal. It doubles with each round that
	// the server refuses, up to longestPause. A server may ask for more.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// pausePatience is the longest pause, as a multiple of the wait that the server asks for.
	pausePatience = 8
)

// served records that the server has served a request.
func (c *congestion) served() {
	c.limit = min(c.most, c.limit+1/c.limit)
	c.refusals = 0
}

// ended records the end of a request that began in a round and was not served. after is how long the
// server asks to wait if it refused the request, 0 if it does not say.
func (c *congestion) ended(round int, s plugins.ServerState, after time.Duration, now time.Time) {
	first := round == c.round // of those that were in flight together
	if first && (s == plugins.ServerOverloaded || s == plugins.ServerRefuses) {
		c.limit = max(1, c.limit/2)
		c.round++
	}
	if s == plugins.ServerRefuses {
		c.refuse(first, after, now)
	}
}

// refuse makes all requests pause.
func (c *congestion) refuse(first bool, after time.Duration, now time.Time) {
	if first || c.refusals == 0 {
		c.refusals++
		least := min(longestPause, firstPause<<min(c.refusals-1, 16))
		if after > 0 {
			least = min(least, pausePatience*after)
		}
		after = max(after, least)
	}
	if until := now.Add(after); until.After(c.hold) {
		c.hold = until
	}
}

// pause returns how long no request may start, 0 or less if one may.
func (c *congestion) pause(now time.Time) time.Duration { return c.hold.Sub(now) }
