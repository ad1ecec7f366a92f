// Package congestion decides how many requests a server gets at a time, from what its answers
// show: fewer when it has too much to do, then slowly more.
package congestion

import "time"

// Window limits the requests in flight. The limit starts at its maximum. When the server has too
// much to do, Window halves the limit, once for all requests that were in flight then. Each
// success raises the limit by a fraction, so that a full round of successes raises it by one.
// While the server refuses requests, all of them pause as long as it asks, and longer each time
// that it serves none: a limit per minute must not use up the attempts of many records within
// seconds.
//
// The caller counts the requests, and must not use a Window from several goroutines at a time.
type Window struct {
	most, limit float64
	rounds      int       // how often the limit was halved
	hold        time.Time // no request starts before
	refusals    int       // rounds in a row in which the server refused requests and served none
	refused     time.Time // since when
}

// New returns a window of the most requests that may ever be in flight.
func New(most int) Window { return Window{most: float64(most), limit: float64(most)} }

// Limit returns how many requests may be in flight.
func (w *Window) Limit() int { return int(w.limit) }

// Round identifies the requests that are in flight together. A request that starts keeps it
// for [Window.Ended].
func (w *Window) Round() int { return w.rounds }

// Outcome is what a request shows about the server.
type Outcome int

const (
	Other      Outcome = iota // nothing
	Served                    // it answered
	Overloaded                // it did not answer in time
	Refused                   // it asked to slow down
)

const (
	// FirstPause is the least pause after the first refusal. It doubles with each round that
	// the server refuses, up to LongestPause. A server may ask for more.
	FirstPause   = 100 * time.Millisecond
	LongestPause = 30 * time.Second
	// patience is the longest pause, as a multiple of the wait that the server asks for.
	patience = 8
)

// Ended records the end of a request that began in a round. after is how long the server asks
// to wait if it refused the request, 0 if it does not say.
func (w *Window) Ended(round int, o Outcome, after time.Duration, now time.Time) {
	first := round == w.rounds // of those that were in flight together
	switch {
	case o == Served:
		w.limit = min(w.most, w.limit+1/w.limit)
		w.refusals = 0
	case (o == Overloaded || o == Refused) && first:
		w.limit = max(1, w.limit/2)
		w.rounds++
	}
	if o == Refused {
		w.refuse(first, after, now)
	}
}

// refuse makes all requests pause.
func (w *Window) refuse(first bool, after time.Duration, now time.Time) {
	if w.refusals == 0 {
		w.refused = now
	}
	if first || w.refusals == 0 {
		w.refusals++
		least := min(LongestPause, FirstPause<<min(w.refusals-1, 16))
		if after > 0 {
			least = min(least, patience*after)
		}
		after = max(after, least)
	}
	if until := now.Add(after); until.After(w.hold) {
		w.hold = until
	}
}

// Pause returns how long no request may start, 0 or less if one may.
func (w *Window) Pause(now time.Time) time.Duration { return w.hold.Sub(now) }

// Refusals returns how often in a row, and for how long, the server has refused requests.
func (w *Window) Refusals(now time.Time) (times int, long time.Duration) {
	return w.refusals, now.Sub(w.refused)
}
