package main

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/minhash"
)

// These constants mirror those in kernel.cu.
const (
	lanes   = 32
	warps   = 4
	perPass = 256 // permutations per warp
	step    = 512 // bytes that a warp scans at once
)

// parameters mirrors struct Parameters in kernel.cu.
type parameters struct {
	permutations cuda.Pointer
	count        uint32
	size         uint32
	words        uint32
	legacy       uint32
	queue        uint32
}

// gpu is the device, and everything that stays on it from Open to Close.
type gpu struct {
	options    minhash.Options
	device     *cuda.Device
	module     *cuda.Module
	function   *cuda.Function
	parameters parameters
	threads    int // goroutines that prepare a batch
	slots      []*slot
	held       atomic.Int64 // bytes of device memory held by the slots
}

// openGPU opens device 0: the worker makes no other visible to the process.
func openGPU(driver *cuda.Driver, options minhash.Options, threads int) (*gpu, error) {
	device, err := driver.Open(0)
	if err != nil {
		return nil, err
	}
	g := &gpu{options: options, device: device, threads: threads}
	err = device.Do(func() error { return g.open() })
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *gpu) open() (err error) {
	if g.module, err = g.device.LoadModule(ptx); err != nil {
		return explain(err, g.device.Name)
	}
	if g.function, err = g.module.Function("minhash"); err != nil {
		return err
	}
	if err = g.setParameters(); err != nil {
		return err
	}
	for range inFlight {
		s, err := newSlot(g.device)
		g.slots = append(g.slots, s)
		if err != nil {
			return err
		}
	}
	return nil
}

// setParameters copies the permutations to the device, where they stay.
func (g *gpu) setParameters() (err error) {
	numbers := permutationTable(g.options)
	g.parameters = parameters{
		count: uint32(g.options.NumPerm), size: uint32(g.options.Size),
		queue: uint32(1) << bits.Len(uint(lanes+g.options.Size+step)),
	}
	if g.options.Shingle == minhash.Words {
		g.parameters.words = 1
	}
	if g.options.Scheme == minhash.Legacy {
		g.parameters.legacy = 1
	}
	if g.parameters.permutations, err = g.device.Alloc(8 * len(numbers)); err != nil {
		return err
	}
	stream, err := g.device.NewStream()
	if err != nil {
		return err
	}
	err = stream.CopyIn(g.parameters.permutations, bytesOf(numbers))
	return errors.Join(err, stream.Synchronize(), stream.Destroy())
}

// permutationTable returns a and b of each permutation, padded with zeros to whole
// passes. Legacy ones have b + 1: see almost in kernel.cu.
func permutationTable(options minhash.Options) []uint64 {
	p := minhash.NewPermutations(options.Scheme, options.NumPerm, uint32(options.Seed))
	table := make([]uint64, 2*perPass*passes(options))
	for i := range p.A {
		table[2*i], table[2*i+1] = p.A[i], p.B[i]
		if options.Scheme == minhash.Legacy {
			table[2*i+1]++
		}
	}
	return table
}

func passes(options minhash.Options) int { return (options.NumPerm + perPass - 1) / perPass }

// start prepares a batch in a slot and queues it: copy in, compute, copy out, record the
// event. It does not wait for any of these.
func (g *gpu) start(s *slot, batch plugins.Batch) error {
	return g.device.Do(func() error {
		before := s.held()
		err := s.fill(g.options, batch, g.threads)
		g.held.Add(s.held() - before)
		if err == nil {
			err = g.queue(s)
		}
		if err != nil {
			// Work that is already queued must not outlive the batch.
			_ = s.stream.Synchronize()
		}
		return err
	})
}

func (g *gpu) queue(s *slot) error {
	if err := s.stream.CopyIn(s.text.device, s.text.used()); err != nil {
		return err
	}
	if err := s.stream.CopyIn(s.tiles.device, s.tiles.used()); err != nil {
		return err
	}
	// Values that no warp writes, or that several do, must start at the maximum.
	if err := s.stream.Fill(s.signatures.device, minhash.Largest, s.signatures.length/4); err != nil {
		return err
	}
	if err := g.launch(s); err != nil {
		return err
	}
	if err := s.stream.CopyOut(s.signatures.used(), s.signatures.device); err != nil {
		return err
	}
	return s.done.Record(s.stream)
}

func (g *gpu) launch(s *slot) error {
	tiles := uint32(s.tiles.length) / uint32(unsafe.Sizeof(tile{}))
	if tiles == 0 {
		return nil // only empty texts
	}
	grid := cuda.Size{X: (tiles + warps - 1) / warps, Y: uint32(passes(g.options))}
	shared := 4 * warps * (lanes + int(g.parameters.queue))
	return g.function.Launch(grid, cuda.Size{X: lanes * warps, Y: 1}, shared, s.stream,
		unsafe.Pointer(&g.parameters), unsafe.Pointer(&s.text.device), unsafe.Pointer(&s.tiles.device),
		unsafe.Pointer(&tiles), unsafe.Pointer(&s.signatures.device))
}

// wait returns when the slot's batch is done.
func (g *gpu) wait(s *slot) error { return g.device.Do(s.done.Synchronize) }

// trim frees the memory of a slot that is not in use.
func (g *gpu) trim(s *slot) error {
	g.held.Add(-s.held())
	return g.device.Do(s.freeBuffers)
}

// close frees everything that was allocated. The caller must ensure that no batch is in
// flight.
func (g *gpu) close() error {
	err := g.device.Do(func() error {
		var failed error
		for _, s := range g.slots {
			failed = errors.Join(failed, s.free())
		}
		failed = errors.Join(failed, g.device.Free(g.parameters.permutations))
		if g.module != nil {
			failed = errors.Join(failed, g.module.Unload())
		}
		return failed
	})
	return errors.Join(err, g.device.Close())
}
