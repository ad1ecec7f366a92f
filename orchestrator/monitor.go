package orchestrator

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/wire"
)

// handBackAfter is how long a paused worker keeps its chunk: an overheated device
// pauses for at least a minute, and others could compute the chunk.
const handBackAfter = 10 * time.Second

// deviceMonitor passes what the monitor and the driver report about the job's GPUs to the
// fleet and to the user.
type deviceMonitor struct {
	fleet   *fleet
	events  *emitter
	monitor *gpu.Monitor // nil: nothing is monitored
	sampled bool         // devices were sampled once; used by the monitor only
}

// start watches the job's GPUs until ctx ends. The returned function waits for the end.
func (m *deviceMonitor) start(ctx context.Context, config Config) (wait func(), err error) {
	var all sync.WaitGroup
	devices := m.fleet.gpus()
	if len(devices) == 0 {
		return all.Wait, nil
	}
	if !config.Devices.NoMonitor {
		if err := m.sample(ctx, &all, devices, config); err != nil {
			return nil, err
		}
	}
	options := config.devices
	options.PinUUID = config.Devices.PinUUID
	all.Go(func() { m.watchDriver(ctx, devices, options) })
	return all.Wait, nil
}

// sample starts sampling the GPUs.
func (m *deviceMonitor) sample(ctx context.Context, all *sync.WaitGroup, devices []gpu.Device, config Config) (err error) {
	self := os.Getpid()
	m.monitor, err = gpu.NewMonitor(devices, gpu.MonitorOptions{
		Options: config.devices, Config: config.Devices.Monitor, Profile: gpu.Profile(config.Devices.Profile),
		Own:      func(pid int) bool { return proc.IsDescendant(pid, self) },
		OnSample: m.takeSamples,
		OnLost: func(d gpu.Device) {
			m.fleet.retire(d, fault.New(fault.Device, "the driver reports %s: the GPU is lost", d))
		},
		Clock: config.clock,
	})
	if err != nil {
		return err
	}
	m.monitor.OnAny(m.takeEvent)
	config.Control.watch(m.monitor)
	all.Go(func() {
		m.monitor.Run(ctx)
		m.monitor.Close()
	})
	return nil
}

// noteMemory passes the framework memory of a device to the monitor.
func (m *deviceMonitor) noteMemory(slot Slot, memory *wire.FrameworkMemory) {
	if memory != nil && m.monitor != nil && len(slot.Devices) == 1 {
		m.monitor.SetFrameworkMemory(slot.Devices[0], m.fleet.addMemory(slot, *memory))
	}
}

// takeSamples emits the devices' health and sets the workers' pace.
func (m *deviceMonitor) takeSamples(all []gpu.Health) {
	paces := make(map[string]float64, len(all))
	for _, h := range all {
		paces[h.Device.String()] = h.Pace
		m.events.emit(newDeviceSample(h))
		if h.Problem != "" && !m.sampled { // later changes arrive as events
			m.events.emit(Notice{Text: fmt.Sprintf("%s is not monitored: %s", h.Device, h.Problem)})
		}
	}
	m.sampled = true
	m.fleet.setPaces(paces)
}

// takeEvent forwards a device's event. An overheated device hands back its chunks at
// once, and one that was reset may be tried again.
func (m *deviceMonitor) takeEvent(e gpu.Event) {
	m.events.emit(newDeviceEvent(e))
	switch e.Kind {
	case gpu.Reset:
		m.fleet.setUnsound(e.Device, false)
		return
	case gpu.Overheat:
	default:
		return
	}
	for _, w := range m.fleet.workersOn(e.Device) {
		w.endChunk()
	}
}

// hold notifies the monitor that a kernel is about to open on the slot's devices.
func (m *deviceMonitor) hold(slot Slot) {
	if m.monitor == nil {
		return
	}
	for _, device := range slot.Devices {
		m.monitor.Hold(device)
	}
}

// watchDriver listens to the driver until ctx ends: it learns of a lost GPU before the
// GPU's kernel does, which may be never. On a machine without this support it does
// nothing.
func (m *deviceMonitor) watchDriver(ctx context.Context, devices []gpu.Device, options gpu.Options) {
	_ = gpu.WatchXids(ctx, devices, options, m.onXid)
}

// onXid notifies the user and retires a lost device.
func (m *deviceMonitor) onXid(event gpu.XidEvent) {
	m.events.emit(Notice{Text: "the driver reports " + event.String()})
	if m.monitor != nil {
		m.monitor.CountXid(event)
	}
	switch {
	case gpu.XidNeedsReset(event.Xid):
		m.fleet.setUnsound(event.Device, true)
		m.fleet.retire(event.Device, fault.New(fault.Device, "the driver reports %s: the GPU gets no more work until it is reset", event))
	case gpu.XidFault(event.Xid):
		m.fleet.retire(event.Device, fault.New(fault.Device, "the driver reports %s", event))
	}
}
