package worker

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

// TestAhead: batches to prepare ahead are submitted only as far as they soon complete.
func TestAhead(t *testing.T) {
	for name, test := range map[string]struct {
		ahead    int
		took     []time.Duration
		draining bool
		want     int
	}{
		"the kernel prepares nothing":    {0, []time.Duration{time.Millisecond}, false, 0},
		"nothing is known":               {32, nil, false, 0},
		"fast batches":                   {32, []time.Duration{20 * time.Millisecond}, false, 32},
		"very fast batches":              {32, []time.Duration{0}, false, 32},
		"batches of a tenth of a second": {32, []time.Duration{100 * time.Millisecond}, false, 10},
		"slow batches":                   {32, []time.Duration{time.Second}, false, 0},
		"one slow batch among fast ones": {32, []time.Duration{20 * time.Millisecond, 500 * time.Millisecond}, false, 32},
		"the end of the job":             {32, []time.Duration{time.Millisecond}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Worker{host: &kernelHost{info: plugins.Info{Ahead: test.ahead}}}
			w.draining.Store(test.draining)
			c := computing{worker: w}
			for _, took := range test.took {
				c.averageTime(took)
			}
			if got := c.ahead(10); got != test.want {
				t.Errorf("%d batches ahead, want %d", got, test.want)
			}
		})
	}
}
