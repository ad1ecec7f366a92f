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
	var devices []gpu.Device
	for _, slot := range j.plan.Slots {
		for _, device := range slot.Devices {
			if device.Kind == gpu.GPU {
				devices = append(devices, device)
			}
		}
	}
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
	if !gpu.XidFault(event.Xid) {
		return
	}
	why := fault.New(fault.Device, "the driver reports %s", event)
	name := event.Device.String()
	j.mu.Lock()
	known := j.retired[name] != nil
	j.retired[name] = why
	var workers []*workerProcess
	for i, slot := range j.plan.Slots {
		for _, device := range slot.Devices {
			if device.String() == name && j.slots[i].worker != nil {
				workers = append(workers, j.slots[i].worker)
			}
		}
	}
	j.mu.Unlock()
	if known {
		return
	}
	// Its slot hears the end of the worker, and finds the device retired.
	for _, w := range workers {
		w.process.KillGroup()
	}
}
