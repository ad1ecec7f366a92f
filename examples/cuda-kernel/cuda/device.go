package cuda

import (
	"runtime"
	"strings"
)

// Device is a GPU and this process's context on it.
type Device struct {
	driver  *Driver
	number  int32
	context uintptr

	// Name is the name of the card.
	Name string
}

// Open retains the primary context of a GPU, numbered as CUDA_VISIBLE_DEVICES defines.
// Libraries in the same process share that context. Open need not be called inside Do.
func (d *Driver) Open(ordinal int) (*Device, error) {
	if err := d.check("cuInit", d.Init(0)); err != nil {
		return nil, err
	}
	device := &Device{driver: d}
	if err := d.check("cuDeviceGet", d.DeviceGet(&device.number, int32(ordinal))); err != nil {
		return nil, err
	}
	name := make([]byte, 128)
	if err := d.check("cuDeviceGetName", d.DeviceGetName(&name[0], int32(len(name)), device.number)); err != nil {
		return nil, err
	}
	device.Name, _, _ = strings.Cut(string(name), "\x00")
	if err := d.check("cuDevicePrimaryCtxRetain", d.DevicePrimaryCtxRetain(&device.context, device.number)); err != nil {
		return nil, err
	}
	return device, nil
}

// Close releases the context and everything that was not freed. It need not be called
// inside Do. The device must not be used afterwards.
func (d *Device) Close() error {
	return d.driver.check("cuDevicePrimaryCtxRelease", d.driver.DevicePrimaryCtxRelease(d.number))
}

// Do calls f with the device's context as the current one. CUDA's current context belongs
// to a thread, and Go moves goroutines between threads, so Do locks the goroutine to its
// thread until f returns. It is safe to call Do concurrently.
func (d *Device) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.driver.check("cuCtxSetCurrent", d.driver.CtxSetCurrent(d.context)); err != nil {
		return err
	}
	return f()
}

// Attribute queries the device. It need not be called inside Do.
func (d *Device) Attribute(attribute Attribute) (int, error) {
	var value int32
	err := d.driver.check("cuDeviceGetAttribute", d.driver.DeviceGetAttribute(&value, attribute, d.number))
	return int(value), err
}

// Memory returns the free and the total memory of the device.
func (d *Device) Memory() (free, total uint64, err error) {
	var freeBytes, totalBytes uintptr
	err = d.driver.check("cuMemGetInfo", d.driver.MemGetInfo(&freeBytes, &totalBytes))
	return uint64(freeBytes), uint64(totalBytes), err
}
