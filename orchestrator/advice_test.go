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
		cpu     float64 // cores of the worker
		chosen  chosen
		health  gpu.Health
		want    []string
	}{
		"all is well":           {health: health(80, 95, 0)},
		"memory to spare":       {health: health(31, 95, 0), want: []string{"31% of memory used: try batches of 512 (batch-size 512)"}},
		"a little to spare":     {health: health(48, 95, 0), want: []string{"48% of memory used: try batches of 256 (batch-size 256)"}},
		"much to spare":         {health: health(2, 95, 0), want: []string{"2% of memory used: try batches of 512 (batch-size 512)"}},
		"memory ran out before": {health: health(31, 95, 0), retries: 3},
		"hot":                   {health: health(80, 95, 20*time.Second), want: []string{"GPU 0 was throttled or paused for 20% of the time (up to 91 °C): improve its cooling"}},
		"others' memory": {
			health: gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{PeakTemperature: gpu.Some(40), Throttled: 20 * time.Second, ForMemory: 20 * time.Second}},
			want:   []string{"GPU 0 was slowed for 20% of the time because other processes used its memory"},
		},
		"heat and others' memory": {
			health: gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{PeakTemperature: gpu.Some(80), Throttled: 30 * time.Second, ForMemory: 20 * time.Second}},
			want:   []string{"throttled or paused for 10% of the time (up to 80 °C)", "slowed for 20% of the time because other processes"},
		},
		"it slows itself down": {
			health: gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{PeakTemperature: gpu.Some(84), HeatSlowed: 10 * time.Second, PowerCapped: 90 * time.Second}},
			want:   []string{"throttled or paused for 10% of the time (up to 84 °C): improve its cooling"},
		},
		"gaps between launches":  {health: health(80, 40, 0), busy: 0.9, want: []string{"computed 40% of the time while their kernels were 90% busy: try several workers per GPU (workers-per-gpu auto)"}},
		"gaps, workers chosen":   {health: health(80, 40, 0), busy: 0.9, chosen: chosen{workers: true}},
		"gaps, all cores busy":   {health: health(80, 40, 0), busy: 0.9, cpu: 7.9},
		"batch size chosen":      {health: health(31, 95, 0), chosen: chosen{batchSize: true}},
		"small batches, but CPU": {health: health(31, 27, 0), cpu: 7.9, busy: 0.9, chosen: chosen{workers: true}},
		"idle for want of input": {health: health(80, 40, 0), busy: 0.3},
		"too short to tell":      {health: health(31, 40, 20*time.Second), elapsed: 20 * time.Second},
		"nothing is known":       {health: gpu.Health{}},
		"memory fails": {
			health:  gpu.Health{Device: gpu.Device{Kind: gpu.GPU, Token: "0"}, Total: gpu.Totals{ECCUncorrected: gpu.Some(uint64(2))}},
			elapsed: time.Second, want: []string{"GPU 0 had 2 uncorrected memory errors (ECC) during the job: results it computed may be wrong"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Report{Elapsed: 100 * time.Second, BatchSize: 128, Workers: []WorkerReport{{
				Records: 1, BusyShare: test.busy, Retries: test.retries, Alive: 100 * time.Second, CPU: time.Duration(test.cpu * float64(100*time.Second)),
			}}}
			if test.elapsed > 0 {
				r.Elapsed = test.elapsed
			}
			h := test.health
			r.Devices = []DeviceReport{{Device: h.Device.String(), Name: h.Device.Name, Totals: h.Total, Xids: h.Xids, Problem: h.Problem}}
			r.Bottleneck = r.bottleneck(8, false)
			r.advise(test.chosen)
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

func TestBottleneck(t *testing.T) {
	const all = 100 * time.Second
	some := func(share float64) time.Duration { return time.Duration(share * float64(all)) }
	for name, test := range map[string]struct {
		worker WorkerReport
		gpu    float64
		python bool
		kind   BottleneckKind
		text   string
	}{
		"GPU":              {worker: WorkerReport{CPU: some(1)}, gpu: 92, kind: OfGPU, text: "the GPU, which was 92% busy"},
		"input":            {worker: WorkerReport{WaitedInput: some(0.6)}, gpu: 20, kind: OfInput, text: "waited for records 60% of the time; the GPU was 20% busy"},
		"output":           {worker: WorkerReport{WaitedOutput: some(0.4)}, kind: OfOutput, text: "waited to write results 40%"},
		"all cores":        {worker: WorkerReport{CPU: some(7.6)}, gpu: 27, kind: OfCPU, text: "kernels used 7.6 of 8 cores; the GPU was 27% busy"},
		"interpreter lock": {worker: WorkerReport{CPU: some(1.1)}, gpu: 3, python: true, kind: OfLock, text: "each Python kernel used 1.1 cores, all used 1.1 of 8"},
		"one core":         {worker: WorkerReport{CPU: some(1.1)}, gpu: 3, kind: OfCPU, text: "the CPU in the kernel: each used 1.1 cores"},
		"a kernel waits":   {worker: WorkerReport{CPU: some(0.1)}, gpu: 3, kind: OfKernel, text: "the kernel: it mostly waits, and used 0.1 of 8 cores"},
	} {
		t.Run(name, func(t *testing.T) {
			test.worker.Alive = all
			r := Report{Elapsed: all, Workers: []WorkerReport{test.worker}, Devices: []DeviceReport{{Totals: gpu.Totals{Utilization: gpu.Some(test.gpu)}}}}
			b := r.bottleneck(8, test.python)
			if b == nil || b.Kind != test.kind || !strings.Contains(b.Text, test.text) {
				t.Errorf("%+v", b)
			}
		})
	}
	loads := Report{Elapsed: all + all/2, Load: all / 2, Workers: []WorkerReport{{Alive: all, Load: all / 2, CPU: 8 * (all + all/2)}}}
	if b := loads.bottleneck(8, false); b == nil || b.Text != "the CPU: kernels used 8.0 of 8 cores" {
		t.Errorf("all cores were busy from the start: %+v", b)
	}
	short := Report{Elapsed: time.Second, Workers: []WorkerReport{{Alive: time.Second}}}
	if b := short.bottleneck(8, false); b != nil {
		t.Errorf("a job of a second: %+v", b)
	}
}
