package host

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/view"
)

// card is a GPU of 100 MiB, so that a MiB is a percent.
func card(used uint64, leases ...lease.Lease) GPU {
	return GPU{
		Glance:  gpu.Glance{Device: gpu.Device{Kind: gpu.GPU, UUID: "GPU-0", Memory: 100 << 20}, MemoryUsed: used << 20},
		Account: lease.Account{Leases: leases},
	}
}

func computingJob(batch int) jobs.State {
	return jobs.State{Job: jobs.Info{ID: "3fa9"}, View: view.View{
		Phase: view.PhaseRunning, BatchSize: batch,
		Workers: []view.Worker{{GPUs: []string{"GPU-0"}, Phase: view.PhaseComputing}},
	}}
}

func TestAdvice(t *testing.T) {
	hot := 88
	hotCard := card(10)
	hotCard.Sample.Temperature = gpu.Some(hot)
	haunted := card(10)
	haunted.Strangers = []gpu.Process{{PID: 7, Memory: gpu.Some[uint64](5 << 20)}}
	lost := card(0)
	lost.Lost = "the GPU is lost"
	silent, failing := card(91), card(10)
	silent.Problem = "the NVIDIA driver does not answer"
	failing.Sample.ECCUncorrected = gpu.Some(uint64(3))
	whole := lease.Lease{Name: "nightly", Exclusive: true}
	for name, test := range map[string]struct {
		gpu  GPU
		jobs []jobs.State
		want string // "" for none
	}{
		"nothing":         {gpu: card(10)},
		"full, held":      {gpu: card(91, whole), want: "GPU 0: 91% of its memory is in use, above the threshold of 85%: run gpurun gpus optimize nightly"},
		"full, not held":  {gpu: card(91), want: "91% of its memory is in use without a lease"},
		"hot":             {gpu: hotCard, want: "GPU 0 is at 88 °C"},
		"haunted":         {gpu: haunted, want: "process 7 uses 5 MiB and belongs to no running job"},
		"silent":          {gpu: silent, want: "GPU 0: the NVIDIA driver does not answer; see dmesg"},
		"failing memory":  {gpu: failing, want: "GPU 0: 3 uncorrected memory errors (ECC)"},
		"lost":            {gpu: lost, want: "does not respond"},
		"too large":       {gpu: card(10, lease.Lease{Name: "a", Memory: 50 << 20}), want: "a holds 50 MiB of GPU 0, but only 10 MiB are in use"},
		"small batches":   {gpu: card(21, whole), jobs: []jobs.State{computingJob(128)}, want: "job 3fa9: only 21% of GPU 0's memory is in use: try batches of 512 (now 128)"},
		"good batches":    {gpu: card(60, whole), jobs: []jobs.State{computingJob(128)}},
		"shared":          {gpu: card(21, lease.Lease{Name: "a", Memory: 20 << 20}, lease.Lease{Name: "b", Memory: 20 << 20}), jobs: []jobs.State{computingJob(128)}},
		"still opening":   {gpu: card(1, whole), jobs: []jobs.State{{View: view.View{Phase: view.PhaseRunning, BatchSize: 8, Workers: []view.Worker{{GPUs: []string{"GPU-0"}, Phase: view.PhaseOpening}}}}}},
		"does not answer": {gpu: card(1, whole), jobs: []jobs.State{{Trouble: "frozen"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Overview{GPUs: []GPU{test.gpu}, Jobs: test.jobs}.Advice(0.85)
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A process belongs to a job if it or one of its ancestors is the job.
func TestBelongs(t *testing.T) {
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	child := sleeper.Process.Pid
	for name, test := range map[string]struct {
		living int
		want   bool
	}{"itself": {child, true}, "its parent": {os.Getpid(), true}, "another process": {1 << 30, false}} {
		if got := belongs(child, map[int]bool{test.living: true}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if belongs(1<<30, map[int]bool{os.Getpid(): true}) {
		t.Error("a process that is not there")
	}
}
