package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
)

// HandBackAfter is how long a paused worker keeps its chunk: an overheated device
// pauses for at least a minute, and others could compute the chunk.
const HandBackAfter = 10 * time.Second

// deviceMonitor passes what the monitor and the driver report about the job's GPUs to the
// fleet and to the user.
type deviceMonitor struct {
	roster  *roster
	emit    func(event.Event)
	monitor *gpu.Monitor // nil: nothing is monitored
	sampled bool         // devices were sampled once; used by the monitor only
}

// start watches the job's GPUs until ctx ends. The returned function waits for the end.
func (m *deviceMonitor) start(ctx context.Context, o Options) (wait func(), err error) {
	var all sync.WaitGroup
	devices := gpusOf(o.Slots)
	if len(devices) == 0 {
		return all.Wait, nil
	}
	if o.Monitor != nil {
		if err := m.sample(ctx, &all, devices, o); err != nil {
			return all.Wait, err
		}
	}
	// The driver tells of a lost GPU before the GPU's kernel does, which may be never.
	all.Go(func() { _ = gpu.WatchXids(ctx, devices, o.Devices, m.onXid) })
	return all.Wait, nil
}

// gpusOf returns the distinct GPUs of slots.
func gpusOf(slots []event.Slot) []gpu.Device {
	return slices.DeleteFunc(event.Devices(slots), func(d gpu.Device) bool { return d.Kind != gpu.GPU })
}

// sample starts sampling the GPUs.
func (m *deviceMonitor) sample(ctx context.Context, all *sync.WaitGroup, devices []gpu.Device, o Options) (err error) {
	options := *o.Monitor
	options.Own = isOurs
	options.OnSample, options.OnEvent = m.onSamples, m.onEvent
	options.OnLost = func(d gpu.Device) {
		m.roster.retire(d, fault.GPULost.New("the driver reports %s: the GPU is lost", d))
	}
	if m.monitor, err = gpu.NewMonitor(devices, options); err != nil {
		return err
	}
	o.OnMonitor(m.monitor)
	all.Go(func() {
		m.monitor.Run(ctx)
		m.monitor.Close()
	})
	return nil
}

// setMemory passes the framework memory of a device to the monitor.
func (m *deviceMonitor) setMemory(slot event.Slot, memory *wire.FrameworkMemory) {
	if memory != nil && len(slot.Devices) == 1 {
		m.monitor.SetFrameworkMemory(slot.Devices[0], m.roster.addMemory(slot, *memory))
	}
}

// onSamples emits the devices' health and sets the workers' pace.
func (m *deviceMonitor) onSamples(all []gpu.Health) {
	paces := make(map[string]float64, len(all))
	for _, h := range all {
		paces[h.Device.String()] = h.Pace
		m.emit(event.NewDeviceSample(h))
		if h.Problem != "" && !m.sampled { // later changes arrive as events
			m.emit(event.Notice{Text: fmt.Sprintf("%s is not monitored: %s", h.Device, h.Problem)})
		}
	}
	m.sampled = true
	m.roster.setPaces(paces)
}

// onEvent forwards a device's event. An overheated device hands back its chunks at
// once, and one that was reset may be tried again.
func (m *deviceMonitor) onEvent(e gpu.Event) {
	m.emit(event.NewDeviceEvent(e))
	switch e.Kind {
	case gpu.Reset:
		m.roster.setUnsound(e.Device, false)
		return
	case gpu.Overheat:
	default:
		return
	}
	for _, w := range m.roster.workers(on(e.Device)) {
		w.EndChunk()
	}
}

// hold notifies the monitor that a kernel is about to open on the slot's devices.
func (m *deviceMonitor) hold(slot event.Slot) {
	for _, device := range slot.Devices {
		m.monitor.Hold(device)
	}
}

// onXid notifies the user and retires a lost device.
func (m *deviceMonitor) onXid(x gpu.XidEvent) {
	m.emit(event.Notice{Text: "the driver reports " + x.String()})
	m.monitor.CountXid(x)
	switch {
	case gpu.XidNeedsReset(x.Xid):
		m.roster.setUnsound(x.Device, true)
		m.roster.retire(x.Device, fault.GPULost.New("the driver reports %s: the GPU gets no more work until it is reset", x))
	case gpu.XidFault(x.Xid):
		m.roster.retire(x.Device, fault.GPULost.New("the driver reports %s", x))
	}
}

// health returns what the monitor knows about a device.
func (m *deviceMonitor) health(name string) (gpu.Health, bool) {
	all := m.monitor.Status()
	i := slices.IndexFunc(all, func(h gpu.Health) bool { return h.Device.String() == name })
	if i < 0 {
		return gpu.Health{}, false
	}
	return all[i], true
}

// isOurs reports whether a process works for this job.
func isOurs(pid int) bool { return proc.WorksForUs(pid, wire.MarkVariable) }
