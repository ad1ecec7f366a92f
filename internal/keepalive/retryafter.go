package keepalive

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter returns how long the header of an answer asks to wait before the next request, 0 if it
// does not: it has seconds, or a date.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// longestWait keeps a wait in the range of a Duration.
const longestWait = 100 * 365 * 24 * time.Hour
