package orchestrator

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// handBackAfter is how long a paused worker keeps its chunk: an overheated device
// pauses for at least a minute, and others could compute the chunk.
const handBackAfter = 10 * time.Second

// startMonitor starts monitoring the job's GPUs. The returned function waits for it to
// end. A job without GPUs has no monitor.
func (j *job) startMonitor(ctx context.Context) (stop func(), err error) {
	devices := j.gpus()
	if j.config.NoMonitor || len(devices) == 0 {
		return func() {}, nil
	}
	self := os.Getpid()
	monitor, err := gpu.NewMonitor(devices, gpu.MonitorOptions{
		Options: j.config.devices, Config: j.config.Monitor, Profile: gpu.Profile(j.config.Profile),
		Own:      func(pid int) bool { return proc.IsDescendant(pid, self) },
		OnSample: j.takeSamples,
		OnLost: func(d gpu.Device) {
			j.retireDevice(d, fault.New(fault.Device, "the driver reports %s: the GPU is lost", d))
		},
		Clock: j.config.clock,
	})
	if err != nil {
		return nil, err
	}
	monitor.OnAny(j.takeDeviceEvent)
	if j.folder != nil {
		j.samples.path = j.folder.join(samplesFile)
	}
	j.monitor = monitor
	done := make(chan struct{})
	go func() {
		defer close(done)
		monitor.Run(ctx)
		monitor.Close()
		j.samples.close()
	}()
	return func() { <-done }, nil
}

// noteMemory passes the framework memory of a device to the monitor, summed over the
// device's slots. Models that span several GPUs are skipped: their memory cannot be
// attributed to one.
func (j *job) noteMemory(slot Slot, memory *wire.FrameworkMemory) {
	if memory == nil || j.monitor == nil || len(slot.Devices) != 1 {
		return
	}
	j.mu.Lock()
	if j.frameworks == nil {
		j.frameworks = make(map[int]wire.FrameworkMemory)
	}
	j.frameworks[slot.Number] = *memory
	total := gpu.FrameworkMemory{Library: memory.Library}
	for _, other := range j.plan.Slots {
		if len(other.Devices) == 1 && other.Devices[0].String() == slot.Devices[0].String() {
			total.Allocated += j.frameworks[other.Number].Allocated
			total.Cached += j.frameworks[other.Number].Cached
		}
	}
	j.mu.Unlock()
	j.monitor.SetFrameworkMemory(slot.Devices[0], total)
}

// gpus returns the distinct GPUs of all slots.
func (j *job) gpus() []gpu.Device {
	var devices []gpu.Device
	known := make(map[string]bool)
	for _, slot := range j.plan.Slots {
		for _, device := range slot.Devices {
			if name := device.String(); device.Kind == gpu.GPU && !known[name] {
				known[name] = true
				devices = append(devices, device)
			}
		}
	}
	return devices
}

// takeSamples emits the devices' health and sets the workers' pace.
func (j *job) takeSamples(all []gpu.Health) {
	paces := make(map[string]float64, len(all))
	for _, h := range all {
		paces[h.Device.String()] = h.Pace
		j.emit(newDeviceSample(h))
		if h.Problem != "" && !j.sampled { // later changes arrive as events
			j.emit(Notice{Text: fmt.Sprintf("%s is not monitored: %s", h.Device, h.Problem)})
		}
	}
	j.sampled = true
	j.samples.take(all, time.Now())
	j.mu.Lock()
	defer j.mu.Unlock()
	changed := false
	for i, slot := range j.plan.Slots {
		share := 1.0
		for _, device := range slot.Devices {
			if pace, known := paces[device.String()]; known {
				share = min(share, pace)
			}
		}
		s := &j.slots[i]
		if s.pace == share {
			continue
		}
		s.pace, changed = share, true
		if s.worker != nil {
			s.worker.setPace(share, j.config.handBack)
		}
	}
	if changed {
		close(j.paceChanged)
		j.paceChanged = make(chan struct{})
	}
}

// takeDeviceEvent forwards a device's event. An overheated device hands back its chunks
// at once.
func (j *job) takeDeviceEvent(e gpu.Event) {
	j.emit(newDeviceEvent(e))
	if e.Kind != gpu.Overheat {
		return
	}
	for _, w := range j.workersOn(e.Device) {
		w.endChunk()
	}
}

// workersOn returns the workers that use a device.
func (j *job) workersOn(device gpu.Device) []*workerProcess {
	name := device.String()
	j.mu.Lock()
	defer j.mu.Unlock()
	var workers []*workerProcess
	for i, slot := range j.plan.Slots {
		for _, d := range slot.Devices {
			if d.String() == name && j.slots[i].worker != nil {
				workers = append(workers, j.slots[i].worker)
			}
		}
	}
	return workers
}

// pausing reports whether the slot's device must pause.
func (j *job) pausing(slot Slot) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.slots[slot.Number].pace == 0
}

// awaitPace waits as long as the slot's device must pause and work remains.
func (j *job) awaitPace(ctx context.Context, slot Slot) {
	for {
		j.mu.Lock()
		paused, changed := j.slots[slot.Number].pace == 0, j.paceChanged
		j.mu.Unlock()
		if !paused {
			return
		}
		select {
		case <-changed:
		case <-j.queue.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// setPace sets the share of time in which the worker may compute.
func (w *workerProcess) setPace(share float64, handBack time.Duration) {
	_ = w.conn.Send(wire.Message{Pace: &wire.Pace{Share: share, HandBack: handBack}})
}

// hold notifies the monitor that a kernel is about to open on the slot's devices.
func (j *job) hold(slot Slot) {
	if j.monitor == nil {
		return
	}
	for _, device := range slot.Devices {
		j.monitor.Hold(device)
	}
}
