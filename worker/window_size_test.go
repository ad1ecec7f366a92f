package worker

import (
	"testing"
	"time"
)

func TestEvenly(t *testing.T) {
	for _, test := range [][3]int{{16, 100, 16}, {16, 32, 16}, {16, 31, 16}, {16, 18, 9}, {16, 17, 9}, {16, 16, 16}, {16, 3, 16}, {1, 2, 1}} {
		if got := evenly(test[0], test[1]); got != test[2] {
			t.Errorf("evenly(%d, %d) = %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

func TestWindowSizes(t *testing.T) {
	for name, test := range map[string]struct {
		windows          int           // before
		records          int           // of the one measured,
		took             time.Duration // 0: none was measured
		size             int
		tuning, draining bool
		want             int
	}{
		"nothing is known":    {size: 8, want: 1},
		"little is known":     {windows: 1, size: 8, want: 2},
		"much is in flight":   {windows: 9, size: 8, want: maxUnsure},
		"fast":                {records: 8, took: time.Millisecond, size: 8, want: windowBatches},
		"infinitely fast":     {records: 8, took: 1, size: 8, want: windowBatches},
		"ten seconds of work": {records: 8, took: 2 * time.Second, size: 8, want: 5},
		"slow":                {records: 8, took: time.Minute, size: 8, want: 1},
		"larger batches":      {records: 8, took: 2 * time.Second, size: 16, want: 2},
		"trials of sizes":     {records: 8, took: time.Millisecond, size: 8, tuning: true, want: tuneBatches},
		"the end of the job":  {records: 8, took: 300 * time.Millisecond, size: 8, draining: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var w windowSizes
			if test.took > 0 {
				w.done(test.records, test.took)
			}
			for range test.windows {
				w.batches(test.size, test.tuning, test.draining)
			}
			if got := w.batches(test.size, test.tuning, test.draining); got != test.want {
				t.Errorf("%d batches, want %d", got, test.want)
			}
		})
	}
}
