package cuda

import "unsafe"

// Alloc takes memory of the device, which is not cleared.
func (d *Device) Alloc(bytes int) (Pointer, error) {
	var pointer Pointer
	err := d.driver.check("cuMemAlloc", d.driver.MemAlloc(&pointer, uintptr(bytes)))
	return pointer, err
}

// Free gives memory of the device back; none is none.
func (d *Device) Free(pointer Pointer) error {
	if pointer == 0 {
		return nil
	}
	return d.driver.check("cuMemFree", d.driver.MemFree(pointer))
}

// AllocHost takes page-locked memory of the host. Only from such memory does the
// device copy by itself, while the CPU and its own processors do something else:
// from other memory the driver would copy it to such a buffer first, and wait.
func (d *Device) AllocHost(bytes int) ([]byte, error) {
	const portable = 1 // for every context
	var memory unsafe.Pointer
	if err := d.driver.check("cuMemHostAlloc", d.driver.MemHostAlloc(&memory, uintptr(bytes), portable)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(memory), bytes), nil
}

// FreeHost gives memory of AllocHost back; none is none.
func (d *Device) FreeHost(memory []byte) error {
	if memory == nil {
		return nil
	}
	return d.driver.check("cuMemFreeHost", d.driver.MemFreeHost(unsafe.Pointer(unsafe.SliceData(memory))))
}
