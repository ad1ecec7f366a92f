// Package cuda is as much of CUDA's driver interface as a kernel needs, without
// cgo and without NVIDIA's toolkit: libcuda.so.1, which comes with the driver, is
// opened at run time, so the program builds anywhere and can say it where there is
// no driver.
//
//	driver, err := cuda.Load()
//	device, err := driver.Open(0)
//	err = device.Do(func() error {        // CUDA's current context belongs to a thread
//		module, err := device.LoadModule(ptx)
//		…
//	})
//	err = device.Close()
//
// Unless said otherwise, what is called on a device and on what comes from it must
// be called inside [Device.Do]. Every error is an *[Error] with CUDA's own name.
package cuda
