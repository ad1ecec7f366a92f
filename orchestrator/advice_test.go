package orchestrator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
)

func TestAdvice(t *testing.T) {
	health := func(memory, load float64, throttled time.Duration) gpu.Health {
		return gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{
			PeakTemperature: gpu.Some(91), PeakMemory: gpu.Some(memory), Utilization: gpu.Some(load), Throttled: throttled,
		}}
	}
	for name, test := range map[string]struct {
		elapsed time.Duration
		busy    float64
		retries int64
		health  gpu.Health
		want    []string
	}{
		"all is well":            {health: health(80, 95, 0)},
		"memory to spare":        {health: health(31, 95, 0), want: []string{"31 % of memory used: try batches of 512 (batch-size 512)"}},
		"a little to spare":      {health: health(48, 95, 0), want: []string{"48 % of memory used: try batches of 256 (batch-size 256)"}},
		"much to spare":          {health: health(2, 95, 0), want: []string{"2 % of memory used: try batches of 512 (batch-size 512)"}},
		"memory ran out before":  {health: health(31, 95, 0), retries: 3},
		"hot":                    {health: health(80, 95, 20*time.Second), want: []string{"GPU 0 was throttled or paused for 20 % of the time (up to 91 °C): improve its cooling"}},
		"gaps between launches":  {health: health(80, 40, 0), busy: 0.9, want: []string{"computed 40 % of the time while their kernels were 90 % busy: try several workers per GPU (workers-per-gpu auto)"}},
		"idle for want of input": {health: health(80, 40, 0), busy: 0.3},
		"too short to tell":      {health: health(31, 40, 20*time.Second), elapsed: 20 * time.Second},
		"nothing is known":       {health: gpu.Health{}},
		"memory fails": {
			health:  gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{ECCUncorrected: gpu.Some(uint64(2))}},
			elapsed: time.Second, want: []string{"GPU 0 had 2 uncorrected memory errors (ECC) during the job: results it computed may be wrong"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Report{Elapsed: 100 * time.Second, BatchSize: 128, Workers: []WorkerReport{{Batches: 1, BusyShare: test.busy, Retries: test.retries}}}
			if test.elapsed > 0 {
				r.Elapsed = test.elapsed
			}
			r.takeHealth([]gpu.Health{test.health})
			if len(r.Recommendations) != len(test.want) {
				t.Fatalf("%q, want %q", r.Recommendations, test.want)
			}
			for i, want := range test.want {
				got := fmt.Sprintf("%s (%s)", r.Recommendations[i].Text, r.Recommendations[i].Setting)
				if !strings.Contains(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}
