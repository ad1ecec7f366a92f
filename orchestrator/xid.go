package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// watchDevices listens to the driver until ctx ends: it learns of a lost GPU before the
// GPU's kernel does, which may be never. On a machine without this support it does
// nothing.
func (j *job) watchDevices(ctx context.Context) {
	devices := j.gpus()
	if len(devices) == 0 {
		return
	}
	options := j.config.devices
	options.PinUUID = j.config.PinUUID
	_ = gpu.WatchXids(ctx, devices, options, j.onXid)
}

// onXid notifies the user and retires a lost device.
func (j *job) onXid(event gpu.XidEvent) {
	j.emit(Notice{Text: "the driver reports " + event.String()})
	if j.monitor != nil {
		j.monitor.CountXid(event)
	}
	if gpu.XidFault(event.Xid) {
		j.retireDevice(event.Device, fault.New(fault.Device, "the driver reports %s", event))
	}
}

// retireDevice removes a device from the job. Its slots see their workers exit and find
// the device retired.
func (j *job) retireDevice(device gpu.Device, why *fault.Error) {
	name := device.String()
	j.mu.Lock()
	known := j.retired[name] != nil
	j.retired[name] = why
	j.mu.Unlock()
	if known {
		return
	}
	for _, w := range j.workersOn(device) {
		w.abandon()
	}
}
