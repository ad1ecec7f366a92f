package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/minhash"
)

const (
	// inFlight is how many batches are under way at a time: one is prepared by the
	// CPU while one is copied in, one computed and one copied out.
	inFlight = 4
	// batchSize is enough texts of a kilobyte to fill an H200 for a moment.
	batchSize = 4096
)

// kernel is the plugin.
type kernel struct {
	load func() (*cuda.Driver, error) // cuda.Load unless a test says otherwise

	fallback plugins.Kernel // on a CPU
	gpu      *gpu
	slots    chan *slot    // not in use
	running  chan *slot    // in the order of their batches
	finished chan struct{} // closed when the last of running is done with
}

// Describe checks the configuration, which is that of the built-in minhash.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	options, err := minhash.Parse(config)
	return plugins.Info{Name: "minhash-cuda", Inputs: []string{options.Field}, BatchSize: batchSize, InFlight: inFlight, CanTrim: true}, err
}

// Open takes the GPU, or the CPU where the worker has none.
func (k *kernel) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	options, err := minhash.Parse(config)
	if err != nil {
		return err
	}
	load := k.load
	if load == nil {
		load = cuda.Load
	}
	driver, err := load()
	if !device.GPU {
		return k.openCPU(ctx, device, config, err)
	}
	if err != nil {
		return fmt.Errorf("%w; with --gpus cpu:N this kernel computes on the CPU", err)
	}
	k.gpu, err = openGPU(driver, options, max(1, device.Threads))
	if err != nil {
		return classify(err)
	}
	k.slots, k.running, k.finished = make(chan *slot, inFlight), make(chan *slot, inFlight), make(chan struct{})
	for _, slot := range k.gpu.slots {
		k.slots <- slot
	}
	go k.collect()
	return nil
}

// openCPU says that the built-in kernel does the work; noDriver is why it must, if
// that is known.
func (k *kernel) openCPU(ctx context.Context, device plugins.Device, config plugins.Config, noDriver error) error {
	reason := device.Name + " is none"
	if noDriver != nil {
		reason = noDriver.Error()
	}
	fmt.Fprintf(os.Stderr, "minhash-cuda: no GPU (%s): computing on the CPU\n", reason)
	k.fallback = minhash.New()
	return k.fallback.Open(ctx, device, config)
}

// Process prepares a batch, queues it for the GPU and returns; collect does the
// rest. A slot is free, since no more batches than slots are under way.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.fallback != nil {
		return k.fallback.Process(ctx, batch, results)
	}
	slot := <-k.slots
	slot.results, slot.finish = results, results.Defer()
	slot.err = k.gpu.start(slot, batch)
	k.running <- slot // with its error too: batches are finished in order
	return nil
}

// collect waits for the batches, one after the other, and finishes them.
func (k *kernel) collect() {
	defer close(k.finished)
	for slot := range k.running {
		err := slot.err
		if err == nil {
			err = k.gpu.wait(slot)
		}
		if err == nil {
			slot.deliver(k.gpu.options)
		}
		finish := slot.finish
		slot.results, slot.finish = nil, nil
		k.slots <- slot // before finish, after which the next batch may come
		finish(classify(err))
	}
}

// Trim gives back the buffers of the slots that are not in use.
func (k *kernel) Trim(context.Context) error {
	var err error
	for range len(k.slots) { // nobody else takes one meanwhile
		slot := <-k.slots
		err = errors.Join(err, k.gpu.trim(slot))
		k.slots <- slot
	}
	return classify(err)
}

// Memory is what the slots hold of the device.
func (k *kernel) Memory() plugins.FrameworkMemory {
	if k.gpu == nil {
		return plugins.FrameworkMemory{}
	}
	held := uint64(k.gpu.held.Load())
	return plugins.FrameworkMemory{Library: "cuda", Allocated: held, Cached: held}
}

// Close waits for what is under way and frees everything; a process that is killed
// has it freed by the driver.
func (k *kernel) Close() error {
	if k.gpu == nil {
		return nil
	}
	close(k.running)
	<-k.finished
	err := k.gpu.close()
	k.gpu = nil
	return err
}
