package scaler

import (
	"time"

	"github.com/gpurun/gpurun/gpu"
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

// ratePoints is how many changes of its progress the job's current rate is measured over.
const ratePoints = 5

// remaining estimates how long the rest of the job takes at its current rate; negative
// if unknown.
func (s *Scaler) remaining() time.Duration {
	now := time.Now()
	done, total := s.fleet.Progress()
	switch last := len(s.recent) - 1; {
	case last < 0 || s.recent[last].done != done:
		s.recent = append(s.recent, jobProgress{now, done})
	case last == 0: // nothing is computed yet
		s.recent[0].at = now
	}
	s.recent = s.recent[max(0, len(s.recent)-ratePoints-1):]
	first := s.recent[0]
	if total < 0 || done <= first.done {
		return -1
	}
	seconds := float64(total-done) * now.Sub(first.at).Seconds() / float64(done-first.done)
	return time.Duration(min(seconds, 1e8) * float64(time.Second))
}

// figures returns what is known about the device.
func (g *group) figures(host resources.Usage, running resources.Processes, left time.Duration) scaling.Figures {
	s := g.scaler
	w := s.fleet.Work(g.of)
	f := scaling.Figures{
		Time: time.Since(s.start), Workers: w.Ready, Loading: w.Loading, Limit: len(g.places) + len(g.reserve), Cold: w.Cold,
		Records: w.Records, Bytes: w.Bytes, Batches: w.Batches,
		Busy: w.Busy, GPUBusy: -1, Cores: host.Cores, IdleCores: host.Idle, HostFree: host.Available,
		Load: w.Load, Remaining: left, OOMs: g.ooms, Refused: g.refused, Unsteady: w.Unsteady,
	}
	g.addProcesses(w, running, &f)
	g.addDevice(w, &f)
	if s.Simulate != nil {
		s.Simulate(&f)
	}
	g.before = f
	return f
}

// addProcesses adds what the workers' processes and their interpreters use of the host.
func (g *group) addProcesses(w Work, running resources.Processes, f *scaling.Figures) {
	last := treeTime{at: time.Now()}
	add := func(roots []int) (most uint64) {
		for _, tree := range running.Trees(roots) {
			last.seconds += tree.Ran + tree.Waited
			most = max(most, tree.Memory)
		}
		return most
	}
	f.HostEach = add(w.PIDs)
	var forked []int
	for _, pid := range w.Templates {
		forked = append(forked, running.Children(pid)...)
	}
	f.HostEach += add(forked)
	if passed := last.at.Sub(g.trees.at).Seconds(); !g.trees.at.IsZero() && passed > 0 && last.seconds > g.trees.seconds {
		f.Runnable = (last.seconds - g.trees.seconds) / passed
	}
	g.trees = last
}

// sampleTime is how long the same workers must have computed before a sample tells how busy they keep
// the GPU: it is about the last second at most.
const sampleTime = 700 * time.Millisecond

// addDevice adds what the monitor knows about the GPU.
func (g *group) addDevice(w Work, f *scaling.Figures) {
	h, ok := g.scaler.fleet.Health(g.name)
	if !ok || h.Problem != "" {
		return
	}
	if now, before := computing(*f), computing(g.before); now != before || now == 0 {
		g.steady = time.Now().Add(-f.Cold)
	}
	seen := h.Sample.Time.After(g.steady.Add(sampleTime))
	if percent, known := h.Sample.Utilization.Get(); known && seen {
		f.GPUBusy = float64(percent) / 100
	}
	if !seen && time.Since(g.steady) > sampleTime {
		g.scaler.fleet.Sample()
	}
	memory, known := h.Sample.Memory.Get()
	if !known {
		return
	}
	own := ownMemory(h, g.scaler.Own)
	f.Others = memory.Used - min(memory.Used, own)
	usable := g.scaler.Usable(memory.Total)
	f.DeviceFree = max(1, usable-min(usable, memory.Used))
	if workers := w.Ready + w.Loading; workers > 0 {
		f.DeviceEach = max(own/uint64(workers), g.scaler.MinMemory)
	}
}

// computing returns how many workers compute. Of those that compute their first batch, it counts one.
func computing(f scaling.Figures) int {
	if f.Cold > 0 {
		return f.Workers + 1
	}
	return f.Workers
}

// ownMemory returns how much of a device's memory the job's processes use. Where the
// driver does not show them, it is what is used now and was not before the job.
func ownMemory(h gpu.Health, is func(pid int) bool) (own uint64) {
	processes, _ := h.Sample.Processes.Get()
	for _, p := range processes {
		if is(p.PID) {
			own += p.Memory.Or(0)
		}
	}
	if memory, known := h.Sample.Memory.Get(); own == 0 && known && h.Device.Memory > 0 {
		before := h.Device.Memory - min(h.Device.Memory, h.Device.MemoryFree)
		own = memory.Used - min(memory.Used, before)
	}
	return own
}
