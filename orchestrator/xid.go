package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

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
	if gpu.XidFault(event.Xid) {
		m.fleet.retire(event.Device, fault.New(fault.Device, "the driver reports %s", event))
	}
}
