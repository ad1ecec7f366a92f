package worker

import (
	"testing"
	"time"
)

// device takes a fixed time per launch and some per record, and has limited memory.
type device struct {
	launch, record time.Duration
	holds          int
}

// tune runs a tuner until it is done or has seen this many batches.
func tune(sizes *batchSizes, d device, batches, longest int) {
	for range batches {
		n := min(sizes.size(), longest)
		if d.holds > 0 && n > d.holds {
			sizes.shrink(load{records: n})
			continue
		}
		sizes.good(load{records: n})
		sizes.goodGroup(trial{n, 1, n, d.launch + time.Duration(n)*d.record})
	}
}

func TestTuner(t *testing.T) {
	for name, test := range map[string]struct {
		device  device
		longest int // batch available
		want    int
	}{
		// 4 ms a launch and 10 µs a record: each doubling helps less and less.
		"helps for a while":  {device{4 * time.Millisecond, 10 * time.Microsecond, 0}, 1 << 20, 16384},
		"does not help":      {device{0, 100 * time.Microsecond, 0}, 1 << 20, 128},
		"memory":             {device{50 * time.Millisecond, 10 * time.Microsecond, 700}, 1 << 20, 512},
		"memory at once":     {device{50 * time.Millisecond, 10 * time.Microsecond, 100}, 1 << 20, 64},
		"short chunks":       {device{50 * time.Millisecond, 10 * time.Microsecond, 0}, 1000, 512},
		"no time":            {device{20 * time.Second, 0, 0}, 1 << 20, 128},
		"no end to the gain": {device{time.Second, 0, 0}, 1 << 30, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := &batchSizes{records: memoryLimit{want: 128}, auto: newTuner(128)}
			tune(sizes, test.device, 2000, test.longest)
			if got := sizes.size(); got != test.want || !sizes.auto.done {
				t.Errorf("size %d, done %v; want %d", got, sizes.auto.done, test.want)
			}
		})
	}
}

// TestFoundSoFar: a job that ends while sizes are tried also has a best one.
func TestFoundSoFar(t *testing.T) {
	sizes := batchSizes{records: memoryLimit{want: 128}, auto: newTuner(128)}
	d := device{launch: 100 * time.Millisecond}
	tune(&sizes, d, 2, 1<<20)
	if got := sizes.found(); got != 0 {
		t.Errorf("%d after two batches: none can be judged yet", got)
	}
	tune(&sizes, d, 9, 1<<20)
	if got := sizes.found(); got != 256 || sizes.auto.done {
		t.Errorf("%d, done %t", got, sizes.auto.done)
	}
}
