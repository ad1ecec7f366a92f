package cuda

import "unsafe"

// Alloc allocates device memory without clearing it.
func (d *Device) Alloc(bytes int) (Pointer, error) {
	var pointer Pointer
	err := d.driver.check("cuMemAlloc", d.driver.MemAlloc(&pointer, uintptr(bytes)))
	return pointer, err
}

// Free frees device memory. Freeing 0 does nothing.
func (d *Device) Free(pointer Pointer) error {
	if pointer == 0 {
		return nil
	}
	return d.driver.check("cuMemFree", d.driver.MemFree(pointer))
}

// AllocHost allocates page-locked host memory. The device can copy asynchronously only
// from such memory, while the CPU and the multiprocessors do other work. From other
// memory, the driver would first copy to such a buffer and wait.
func (d *Device) AllocHost(bytes int) ([]byte, error) {
	const portable = 1 // usable in every context
	var memory unsafe.Pointer
	if err := d.driver.check("cuMemHostAlloc", d.driver.MemHostAlloc(&memory, uintptr(bytes), portable)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(memory), bytes), nil
}

// FreeHost frees memory from AllocHost. Freeing nil does nothing.
func (d *Device) FreeHost(memory []byte) error {
	if memory == nil {
		return nil
	}
	return d.driver.check("cuMemFreeHost", d.driver.MemFreeHost(unsafe.Pointer(unsafe.SliceData(memory))))
}
