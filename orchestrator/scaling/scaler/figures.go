package scaler

import (
	"os"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/resources"
	"github.com/gpurun/gpurun/orchestrator/scaling"
)

// treeTime is how long the processes of some workers have run or wanted to.
type treeTime struct {
	at      time.Time
	seconds float64
}

// jobProgress is how many records were done at a time.
type jobProgress struct {
	at   time.Time
	done int64
}

// rateIntervals is how many intervals the job's current rate is measured over.
const rateIntervals = 5

// remaining estimates how long the rest of the job takes at its current rate; negative
// if unknown.
func (s *Scaler) remaining() time.Duration {
	now := time.Now()
	done, total := s.fleet.Progress()
	s.recent = append(s.recent, jobProgress{now, done})
	if len(s.recent) > rateIntervals {
		s.recent = s.recent[1:]
	}
	first := s.recent[0]
	if total < 0 || done <= first.done {
		return -1
	}
	seconds := float64(total-done) * now.Sub(first.at).Seconds() / float64(done-first.done)
	return time.Duration(min(seconds, 1e8) * s.speed() * float64(time.Second))
}

// figures returns what is known about a device.
func (s *Scaler) figures(g *scaled, host resources.Usage, left time.Duration) scaling.Figures {
	w := s.fleet.Work(g.of)
	now := time.Duration(float64(time.Since(s.start)) * s.speed())
	f := scaling.Figures{
		Time: now, Workers: w.Ready, Loading: w.Loading, Limit: len(g.places) + len(g.reserve),
		Records: w.Records, Bytes: w.Bytes, Batches: w.Batches,
		Busy: time.Duration(float64(w.Busy) * s.speed()), GPUBusy: -1, Cores: host.Cores, IdleCores: host.Idle, HostFree: host.Available,
		Load: time.Duration(float64(w.Load) * s.speed()), Remaining: left,
		OOMs: g.ooms, Refused: g.refused,
		Unsteady: w.Unsteady,
	}
	s.addProcesses(g, w, &f)
	s.addDevice(g, w, &f)
	if s.Simulate != nil {
		s.Simulate(&f)
	}
	g.before = f
	return f
}

// addProcesses adds what the workers' processes use of the host.
func (s *Scaler) addProcesses(g *scaled, w Work, f *scaling.Figures) {
	last := treeTime{at: time.Now()}
	for _, tree := range (resources.System{}).Trees(w.PIDs) {
		last.seconds += tree.Ran + tree.Waited
		f.HostEach = max(f.HostEach, tree.Memory)
	}
	if passed := last.at.Sub(g.trees.at).Seconds(); !g.trees.at.IsZero() && passed > 0 && last.seconds > g.trees.seconds {
		f.Runnable = (last.seconds - g.trees.seconds) / passed
	}
	g.trees = last
}

// loadSamples is how many samples of a GPU's utilization are averaged.
const loadSamples = 3

// addDevice adds what the monitor knows about the GPU.
func (s *Scaler) addDevice(g *scaled, w Work, f *scaling.Figures) {
	h, ok := s.fleet.Health(g.name)
	if !ok || h.Problem != "" {
		return
	}
	if percent, known := h.Sample.Utilization.Get(); known && h.Sample.Time.After(g.sampled) {
		g.sampled = h.Sample.Time
		if g.load = append(g.load, float64(percent)/100); len(g.load) > loadSamples {
			g.load = g.load[1:]
		}
	}
	if f.Workers != g.before.Workers { // the old ones say nothing about the new ones
		g.load = nil
	}
	if len(g.load) > 0 {
		sum := 0.0
		for _, share := range g.load {
			sum += share
		}
		f.GPUBusy = sum / float64(len(g.load))
	}
	memory, known := h.Sample.Memory.Get()
	if !known {
		return
	}
	own := ownMemory(h)
	f.Others = memory.Used - min(memory.Used, own)
	usable := s.Usable(memory.Total)
	f.DeviceFree = max(1, usable-min(usable, memory.Used))
	if workers := w.Ready + w.Loading; workers > 0 {
		f.DeviceEach = max(own/uint64(workers), s.MinMemory)
	}
}

// ownMemory returns how much of a device's memory the job's processes use. Where the
// driver does not show them, it is what is used now and was not before the job.
func ownMemory(h gpu.Health) (own uint64) {
	self := os.Getpid()
	processes, _ := h.Sample.Processes.Get()
	for _, p := range processes {
		if proc.IsDescendant(p.PID, self) {
			own += p.Memory.Or(0)
		}
	}
	if memory, known := h.Sample.Memory.Get(); own == 0 && known && h.Device.Memory > 0 {
		before := h.Device.Memory - min(h.Device.Memory, h.Device.MemoryFree)
		own = memory.Used - min(memory.Used, before)
	}
	return own
}
