package keepalive_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/keepalive"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-3": 0, "NaN": 0, "7": 7 * time.Second, "0.25": 250 * time.Millisecond,
		"1e300": 100 * 365 * 24 * time.Hour, "inf": 100 * 365 * 24 * time.Hour,
		now.Add(time.Minute).Format(http.TimeFormat):  time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := keepalive.RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}
