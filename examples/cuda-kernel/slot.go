package main

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/minhash"
)

// slot holds the resources of one batch in flight: a stream, memory on both sides, and
// the results to deliver to.
type slot struct {
	device *cuda.Device
	stream *cuda.Stream
	done   *cuda.Event // occurs when the results are in host memory

	text, tiles, signatures buffer

	results  *plugins.Results
	finish   func(error)
	failures []error // by record; set for those without a text
	err      error   // from gpu.start
}

// tile mirrors struct Tile in kernel.cu.
type tile struct{ text, start, end, from, to uint32 }

const (
	// tileBytes is the size of the part of a text that one warp processes. It spans
	// enough rounds that the last one, which may be nearly empty, costs little. It is a
	// multiple of step.
	tileBytes = 4096
	// maxText is the maximum text of a batch in bytes: positions have 32 bits.
	maxText = math.MaxInt32
)

func newSlot(device *cuda.Device) (s *slot, err error) {
	s = &slot{device: device}
	if s.stream, err = device.NewStream(); err != nil {
		return s, err
	}
	s.done, err = device.NewEvent()
	return s, err
}

// held returns how much device memory the slot holds.
func (s *slot) held() int64 {
	return int64(len(s.text.host) + len(s.tiles.host) + len(s.signatures.host))
}

func (s *slot) freeBuffers() error {
	return errors.Join(s.text.free(s.device), s.tiles.free(s.device), s.signatures.free(s.device))
}

func (s *slot) free() error {
	err := s.freeBuffers()
	if s.done != nil {
		err = errors.Join(err, s.done.Destroy())
	}
	if s.stream != nil {
		err = errors.Join(err, s.stream.Destroy())
	}
	return err
}

// fill writes the batch's texts to page-locked memory and splits them into tiles.
func (s *slot) fill(options minhash.Options, batch plugins.Batch, threads int) error {
	room := textRoom(options, batch)
	if room[batch.Len()] > maxText {
		return plugins.OutOfMemory(fmt.Errorf("the batch has %d bytes of text, more than the limit of %d", room[batch.Len()], maxText))
	}
	if err := s.text.resize(s.device, room[batch.Len()]); err != nil {
		return err
	}
	if err := s.signatures.resize(s.device, 4*options.NumPerm*batch.Len()); err != nil {
		return err
	}
	ends := make([]int, batch.Len())
	s.failures = make([]error, batch.Len())
	share := (batch.Len() + threads - 1) / threads
	var fillers sync.WaitGroup
	for from := 0; from < batch.Len(); from += share {
		fillers.Go(func() {
			for i := from; i < min(from+share, batch.Len()); i++ {
				// The capacity keeps a text from overflowing into the next one's space.
				place := s.text.host[room[i]:room[i]:room[i+1]]
				text, err := options.Text(place, batch, i)
				ends[i], s.failures[i] = room[i]+len(text), err
			}
		})
	}
	fillers.Wait()
	return s.cut(room, ends)
}

// textRoom returns the offsets at which the space for each text starts, and the offset at
// which the last one ends. No text is longer than its record, but lowercase letters may
// take more bytes than uppercase ones. Each text is aligned to 16 bytes.
func textRoom(options minhash.Options, batch plugins.Batch) []int {
	room := make([]int, batch.Len()+1)
	for i := range batch.Len() {
		size := len(batch.Record(i))
		if options.Lower {
			size *= 2
		}
		room[i+1] = (room[i] + size + 15) &^ 15
	}
	return room
}

// cut creates the tiles of all nonempty texts.
func (s *slot) cut(starts, ends []int) error {
	count := 0
	for i, end := range ends {
		count += (end - starts[i] + tileBytes - 1) / tileBytes
	}
	if err := s.tiles.resize(s.device, count*int(unsafe.Sizeof(tile{}))); err != nil {
		return err
	}
	tiles := valuesOf[tile](s.tiles.used())[:0]
	for i, end := range ends {
		for from := starts[i]; from < end; from += tileBytes {
			tiles = append(tiles, tile{
				text: uint32(i), start: uint32(starts[i]), end: uint32(end),
				from: uint32(from), to: uint32(min(from+tileBytes, end)),
			})
		}
	}
	return nil
}

// deliver converts the signatures to results. It copies them, because the next batch
// reuses the slot's memory.
func (s *slot) deliver(options minhash.Options) {
	values := valuesOf[uint32](s.signatures.used())
	signatures := make([]int64, len(values))
	for i, v := range values {
		signatures[i] = int64(v)
	}
	for i, err := range s.failures {
		if err != nil {
			s.results.Fail(i, err.Error())
		}
	}
	s.results.Column(plugins.Int64s(options.Output, options.NumPerm, signatures))
}
