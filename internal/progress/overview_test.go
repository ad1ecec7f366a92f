package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/host"
	"github.com/gpurun/gpurun/internal/jobs"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/view"
)

func TestWriteOverview(t *testing.T) {
	rest := 86.0
	load, celsius, watts, most := 93, 71, gpu.Watt(250.4), gpu.Watt(700)
	device := func(i int) gpu.Device {
		return gpu.Device{Kind: gpu.GPU, Index: i, Name: "NVIDIA H200", Memory: 80 << 30}
	}
	shared := device(1)
	shared.MPS = "/tmp/nvidia-mps"
	o := host.Overview{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), Host: "node7", DriverVersion: "580.1", Notes: []string{"one\nnote"},
		GPUs: []host.GPU{
			{
				Glance: gpu.Glance{Device: device(0), State: "NORMAL", MemoryUsed: 40 << 30,
					Sample: gpu.Sample{Utilization: gpu.Some(load), Temperature: gpu.Some(celsius), Power: gpu.Some(watts), PowerLimit: gpu.Some(most)}},
				Account: lease.Account{Leases: []lease.Lease{{Name: "nightly", Exclusive: true}}}, Slots: 2, Active: 1,
			},
			{
				Glance:  gpu.Glance{Device: shared, State: "OPTIMAL", Sample: gpu.Sample{Power: gpu.Some(watts)}},
				Account: lease.Account{Leases: []lease.Lease{{Name: "a", Memory: 4 << 30}, {Name: "b", Memory: 1 << 30}}},
			},
			{Glance: gpu.Glance{Device: gpu.Device{Kind: gpu.GPU, Index: 0, Name: "MIG", Parent: &gpu.Parent{Index: 2}}, State: "OPTIMAL"}},
			{Glance: gpu.Glance{Device: device(3), State: "UNAVAILABLE", Lost: "the GPU is lost"}},
			{Glance: gpu.Glance{Device: device(4), State: "UNAVAILABLE", Problem: "the NVIDIA driver does not answer"}},
		},
		Jobs: []jobs.State{
			{
				Job: jobs.Info{ID: "3fa9c201", Name: "nightly", Output: "/data/out.jsonl"},
				View: view.View{Phase: view.PhaseRunning, Done: chunk.Counts{Records: 612000}, Total: 1000000, Rate: 4511, ETA: &rest,
					Workers: []view.Worker{{Name: "GPU 0 #1"}, {Name: "GPU 0 #2"}}},
			},
			{Job: jobs.Info{ID: "00000001", Output: "-"}, View: view.View{Phase: view.PhasePreparing, Total: -1}},
			{Job: jobs.Info{ID: "00000003", Output: "/data/hot.jsonl"}, View: view.View{
				Phase: view.PhaseRunning, Done: chunk.Counts{Records: 2}, Answers: 3, Total: 10, Rate: 2,
				Workers: []view.Worker{{Name: "GPU 1", Phase: view.PhasePaused}, {Name: "GPU 2", Phase: view.PhaseRetired}},
			}},
			{Job: jobs.Info{ID: "00000002"}, Trouble: "job 00000002 does not answer"},
		},
	}
	var b strings.Builder
	WriteOverview(&b, o)
	want := `node7  2026-01-02 03:04:05  driver 580.1
one note
[0]    NVIDIA H200  NORMAL       93%  71 °C  250 / 700 W  40960 / 81920 MB  1/2 slots  nightly (all of it)
[1]    NVIDIA H200  OPTIMAL      -    -      250 W        0 / 81920 MB      no slots   a 4096 MiB, b 1024 MiB  MPS
[2:0]  MIG          OPTIMAL      -    -      -            -                 no slots   free
[3]    NVIDIA H200  UNAVAILABLE  the GPU is lost
[4]    NVIDIA H200  UNAVAILABLE  the NVIDIA driver does not answer
3fa9c201 nightly  running    61.2%  612,000/1,000,000  4,511/s  ETA 1m26s       GPU 0, 2 each  out.jsonl
00000001          preparing         0                  0.0/s                    -              -
00000003          running    50.0%  5/10               2.0/s    paused by heat  GPU 1, GPU 2   hot.jsonl
00000002          job 00000002 does not answer
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWriteLeases(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var b strings.Builder
	WriteLeases(&b, []lease.Lease{
		{Label: "GPU 0", Name: "nightly", Exclusive: true, User: "ann", Owned: true, Identity: proc.Identity{PID: 7}, Created: now},
		{Label: "GPU 1", Name: "a", Memory: 4 << 30, User: "bob", Created: now},
		{Label: "GPU 1", Name: "b", Memory: 1 << 30, User: "bob", Created: now, Expires: now.Add(90 * time.Minute)},
		{Label: "GPU 2", Name: "c", Memory: 1 << 30, User: "bob", Owned: true, Identity: proc.Identity{PID: 8}, Created: now, Expires: now.Add(time.Hour)},
	}, now)
	want := `GPU 0  nightly  all of it  ann  until process 7 ends                       since 03:04:05
GPU 1  a        4096 MiB   bob  until deallocated                          since 03:04:05
GPU 1  b        1024 MiB   bob  for another 1h30m                          since 03:04:05
GPU 2  c        1024 MiB   bob  for another 1h0m, or until process 8 ends  since 03:04:05
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
