// Package cuda wraps the part of CUDA's driver interface that a kernel needs, without
// cgo and without NVIDIA's toolkit. It opens libcuda.so.1, which comes with the driver,
// at run time, so the program builds anywhere and can report a missing driver.
//
//	driver, err := cuda.Load()
//	device, err := driver.Open(0)
//	err = device.Do(func() error {        // CUDA's current context belongs to a thread
//		module, err := device.LoadModule(ptx)
//		…
//	})
//	err = device.Close()
//
// Unless documented otherwise, methods of a device, and of objects created from it, must
// be called inside [Device.Do]. Every error is an *[Error] with CUDA's own name.
package cuda
