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

	// Name is the card's.
	Name string
}

// Open makes the context on a GPU, counted as CUDA_VISIBLE_DEVICES says. It is the
// primary one: libraries in the same process share it. Call it anywhere.
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

// Close gives the context back, and with it everything that was not freed. Call it
// anywhere, and nothing of the device afterwards.
func (d *Device) Close() error {
	return d.driver.check("cuDevicePrimaryCtxRelease", d.driver.DevicePrimaryCtxRelease(d.number))
}

// Do calls f with the device's context as the current one. That belongs to the
// thread, and Go moves goroutines from thread to thread: f's stays where it is until
// f returns. Any number of goroutines may call Do at a time.
func (d *Device) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.driver.check("cuCtxSetCurrent", d.driver.CtxSetCurrent(d.context)); err != nil {
		return err
	}
	return f()
}

// Attribute asks the device; call it anywhere.
func (d *Device) Attribute(attribute Attribute) (int, error) {
	var value int32
	err := d.driver.check("cuDeviceGetAttribute", d.driver.DeviceGetAttribute(&value, attribute, d.number))
	return int(value), err
}

// Memory is how much of the device's memory is free, and how much there is.
func (d *Device) Memory() (free, total uint64, err error) {
	var freeBytes, totalBytes uintptr
	err = d.driver.check("cuMemGetInfo", d.driver.MemGetInfo(&freeBytes, &totalBytes))
	return uint64(freeBytes), uint64(totalBytes), err
}
