package orchestrator

import (
	"context"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
)

// watchDevices listens to the driver until ctx ends: a GPU that is lost is known
// before its kernel notices, which may be never. A machine that cannot tell costs
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

// onXid tells the user, and retires a device that is lost.
func (j *job) onXid(event gpu.XidEvent) {
	j.emit(Notice{Text: "the driver reports " + event.String()})
	if j.monitor != nil {
		j.monitor.CountXid(event)
	}
	if gpu.XidFault(event.Xid) {
		j.retireDevice(event.Device, fault.New(fault.Device, "the driver reports %s", event))
	}
}

// retireDevice takes a device out of the job. Its slots hear the end of their
// workers, and find the device retired.
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
