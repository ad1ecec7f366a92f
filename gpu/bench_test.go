package gpu_test

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/gputest"
)

// BenchmarkPoll measures gpurun's own cost of monitoring eight GPUs; tests with tag gpu
// measure the driver's on a real card. At an interval of 3 s, 30 ms would be 1 % of a
// CPU.
func BenchmarkPoll(b *testing.B) {
	w := benchMonitor(b)
	for b.Loop() {
		w.Poll(b.Context())
	}
	cpuShare(b)
}

// cpuShare reports the time of a poll as a share of the default interval.
func cpuShare(b *testing.B) {
	perPoll := float64(b.Elapsed()) / float64(b.N)
	b.ReportMetric(100*perPoll/float64(gpu.DefaultConfig().Interval), "%CPU@3s")
}

// BenchmarkStatus measures a query, which must take less than a millisecond.
func BenchmarkStatus(b *testing.B) {
	w := benchMonitor(b)
	for b.Loop() {
		if len(w.Status()) != 9 {
			b.Fatal("not all are there")
		}
	}
}

func BenchmarkSpeedMultiplier(b *testing.B) {
	w := benchMonitor(b)
	device := gpu.Device{Kind: gpu.GPU, Index: 7, Token: "7"}
	for b.Loop() {
		w.SpeedMultiplier(device)
	}
}

func benchMonitor(b *testing.B) *gpu.Monitor {
	b.Helper()
	world := gpu.Options{NVML: gputest.EightGPUs(), Env: gputest.NoEnv}
	inventory, err := gpu.Discover(b.Context(), world)
	if err != nil {
		b.Fatal(err)
	}
	monitor, err := gpu.NewMonitor(inventory.Devices, gpu.MonitorOptions{Options: world, Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(monitor.Close)
	for range 200 { // a full history
		monitor.Poll(b.Context())
	}
	return monitor
}
