package cuda

import "unsafe"

// Stream is a queue of work for the device. Work in one stream runs in order; work in
// different streams may run concurrently.
type Stream struct {
	driver *Driver
	handle uintptr
}

// NewStream creates a stream that does not synchronize with the default stream.
func (d *Device) NewStream() (*Stream, error) {
	const nonBlocking = 1
	s := &Stream{driver: d.driver}
	err := d.driver.check("cuStreamCreate", d.driver.StreamCreate(&s.handle, nonBlocking))
	return s, err
}

// Destroy removes the stream once its work is done.
func (s *Stream) Destroy() error {
	return s.driver.check("cuStreamDestroy", s.driver.StreamDestroy(s.handle))
}

// Synchronize returns when all work of the stream is done, with its first error.
func (s *Stream) Synchronize() error {
	return s.driver.check("cuStreamSynchronize", s.driver.StreamSynchronize(s.handle))
}

// CopyIn queues a copy to the device. If from is memory from AllocHost, the caller must
// not change it until the copy is done.
func (s *Stream) CopyIn(to Pointer, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return s.driver.check("cuMemcpyHtoDAsync",
		s.driver.MemcpyHtoDAsync(to, unsafe.Pointer(unsafe.SliceData(from)), uintptr(len(from)), s.handle))
}

// CopyOut queues a copy from the device.
func (s *Stream) CopyOut(to []byte, from Pointer) error {
	if len(to) == 0 {
		return nil
	}
	return s.driver.check("cuMemcpyDtoHAsync",
		s.driver.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(to)), from, uintptr(len(to)), s.handle))
}

// Fill queues writing value to count words of 4 bytes.
func (s *Stream) Fill(to Pointer, value uint32, count int) error {
	return s.driver.check("cuMemsetD32Async", s.driver.MemsetD32Async(to, value, uintptr(count), s.handle))
}

// Event marks a position in a stream.
type Event struct {
	driver *Driver
	handle uintptr
}

// NewEvent creates an event. Waiting for it sleeps; CUDA's default is to spin, which would
// take CPU time from the goroutines that prepare the next batch.
func (d *Device) NewEvent() (*Event, error) {
	const blockingSync = 1
	e := &Event{driver: d.driver}
	err := d.driver.check("cuEventCreate", d.driver.EventCreate(&e.handle, blockingSync))
	return e, err
}

// Destroy removes the event.
func (e *Event) Destroy() error {
	return e.driver.check("cuEventDestroy", e.driver.EventDestroy(e.handle))
}

// Record queues the event in a stream.
func (e *Event) Record(s *Stream) error {
	return e.driver.check("cuEventRecord", e.driver.EventRecord(e.handle, s.handle))
}

// Synchronize returns when everything queued before the event is done.
func (e *Event) Synchronize() error {
	return e.driver.check("cuEventSynchronize", e.driver.EventSynchronize(e.handle))
}

// Since returns the milliseconds between two events that have occurred.
func (e *Event) Since(start *Event) (float32, error) {
	var milliseconds float32
	err := e.driver.check("cuEventElapsedTime", e.driver.EventElapsedTime(&milliseconds, start.handle, e.handle))
	return milliseconds, err
}
