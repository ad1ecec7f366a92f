package cuda

import "unsafe"

// Driver is the table of CUDA's functions. The tags hold their names in the library;
// names with _v2 are those that cuda.h maps the plain name to.
//
// A test may fill the table with its own functions.
type Driver struct {
	GetErrorName   func(code Code, name **byte) Code `cuda:"cuGetErrorName"`
	GetErrorString func(code Code, text **byte) Code `cuda:"cuGetErrorString"`

	Init               func(flags uint32) Code                                    `cuda:"cuInit"`
	DeviceGet          func(device *int32, ordinal int32) Code                    `cuda:"cuDeviceGet"`
	DeviceGetName      func(name *byte, length int32, device int32) Code          `cuda:"cuDeviceGetName"`
	DeviceGetAttribute func(value *int32, attribute Attribute, device int32) Code `cuda:"cuDeviceGetAttribute"`

	DevicePrimaryCtxRetain  func(context *uintptr, device int32) Code `cuda:"cuDevicePrimaryCtxRetain"`
	DevicePrimaryCtxRelease func(device int32) Code                   `cuda:"cuDevicePrimaryCtxRelease_v2"`
	CtxSetCurrent           func(context uintptr) Code                `cuda:"cuCtxSetCurrent"`

	ModuleLoadDataEx  func(module *uintptr, image *byte, count uint32, options *int32, values *uintptr) Code `cuda:"cuModuleLoadDataEx"`
	ModuleGetFunction func(function *uintptr, module uintptr, name *byte) Code                               `cuda:"cuModuleGetFunction"`
	ModuleUnload      func(module uintptr) Code                                                              `cuda:"cuModuleUnload"`

	MemGetInfo   func(free, total *uintptr) Code                                `cuda:"cuMemGetInfo_v2"`
	MemAlloc     func(pointer *Pointer, bytes uintptr) Code                     `cuda:"cuMemAlloc_v2"`
	MemFree      func(pointer Pointer) Code                                     `cuda:"cuMemFree_v2"`
	MemHostAlloc func(memory *unsafe.Pointer, bytes uintptr, flags uint32) Code `cuda:"cuMemHostAlloc"`
	MemFreeHost  func(memory unsafe.Pointer) Code                               `cuda:"cuMemFreeHost"`

	StreamCreate      func(stream *uintptr, flags uint32) Code `cuda:"cuStreamCreate"`
	StreamDestroy     func(stream uintptr) Code                `cuda:"cuStreamDestroy_v2"`
	StreamSynchronize func(stream uintptr) Code                `cuda:"cuStreamSynchronize"`

	EventCreate      func(event *uintptr, flags uint32) Code              `cuda:"cuEventCreate"`
	EventDestroy     func(event uintptr) Code                             `cuda:"cuEventDestroy_v2"`
	EventRecord      func(event, stream uintptr) Code                     `cuda:"cuEventRecord"`
	EventSynchronize func(event uintptr) Code                             `cuda:"cuEventSynchronize"`
	EventElapsedTime func(milliseconds *float32, start, end uintptr) Code `cuda:"cuEventElapsedTime"`

	MemcpyHtoDAsync func(to Pointer, from unsafe.Pointer, bytes uintptr, stream uintptr) Code `cuda:"cuMemcpyHtoDAsync_v2"`
	MemcpyDtoHAsync func(to unsafe.Pointer, from Pointer, bytes uintptr, stream uintptr) Code `cuda:"cuMemcpyDtoHAsync_v2"`
	MemsetD32Async  func(to Pointer, value uint32, count uintptr, stream uintptr) Code        `cuda:"cuMemsetD32Async"`

	LaunchKernel func(function uintptr, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes uint32, stream uintptr, arguments, extra *unsafe.Pointer) Code `cuda:"cuLaunchKernel"`
}

// Pointer is an address in the device's memory; Go cannot follow it.
type Pointer uint64

// Attribute is CUDA's number for a property of a device.
type Attribute int32

// The attributes that this package's users query.
const (
	ClockRate           Attribute = 13 // kHz
	MultiprocessorCount Attribute = 16
)
