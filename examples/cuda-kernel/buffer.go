package main

import (
	"errors"
	"unsafe"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
)

// buffer is memory of the same size on both sides: on the device, and page-locked on the
// host, so that copies are asynchronous. It grows to the size of the largest batch and is
// reused, because allocating memory would stall the device each time.
type buffer struct {
	host   []byte
	device cuda.Pointer
	length int // in use
}

// granule is the multiple that sizes are rounded up to, so that batches of similar size
// need no new allocation.
const granule = 1 << 20

// resize makes room for length bytes and does not preserve the contents. After an error
// the buffer is empty and can be resized again.
func (b *buffer) resize(device *cuda.Device, length int) error {
	b.length = length
	if length <= len(b.host) {
		return nil
	}
	if err := b.free(device); err != nil {
		return err
	}
	size := (length + length/8 + granule - 1) &^ (granule - 1)
	var err error
	if b.device, err = device.Alloc(size); err != nil {
		return err
	}
	if b.host, err = device.AllocHost(size); err != nil {
		return errors.Join(err, b.free(device))
	}
	b.length = length
	return nil
}

func (b *buffer) free(device *cuda.Device) error {
	err := errors.Join(device.Free(b.device), device.FreeHost(b.host))
	*b = buffer{}
	return err
}

// used returns the part of the host memory that is in use.
func (b *buffer) used() []byte { return b.host[:b.length] }

// valuesOf views page-locked memory, which is aligned for any type, as values.
func valuesOf[T any](memory []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/int(unsafe.Sizeof(one)))
}

// bytesOf views values as memory.
func bytesOf[T any](values []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(one)))
}
