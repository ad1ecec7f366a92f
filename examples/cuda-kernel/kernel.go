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
	// inFlight is the number of batches in flight: the CPU prepares one while one is
	// copied in, one is computed and one is copied out.
	inFlight = 4
	// batchSize is large enough to keep an H200 busy with texts of a kilobyte.
	batchSize = 4096
)

// kernel is the plugin.
type kernel struct {
	load func() (*cuda.Driver, error) // nil means cuda.Load; tests replace it

	fallback plugins.Kernel // set when computing on the CPU
	gpu      *gpu
	slots    chan *slot    // idle slots
	running  chan *slot    // slots in use, in the order of their batches
	finished chan struct{} // closed when collect has finished the last batch
}

// Describe checks the configuration, which is the same as for the built-in minhash.
func (k *kernel) Describe(_ context.Context, config plugins.Config) (plugins.Info, error) {
	options, err := minhash.Parse(config)
	return plugins.Info{Name: "minhash-cuda", Inputs: []string{options.Field}, BatchSize: batchSize, InFlight: inFlight, CanTrim: true}, err
}

// Open opens the GPU, or falls back to the CPU if the worker has none.
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
		return fmt.Errorf("%w; select CPU devices to compute without it", err)
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

// openCPU falls back to the built-in kernel and logs that. noDriver is the reason, or nil
// if the driver is available but the device is not a GPU.
func (k *kernel) openCPU(ctx context.Context, device plugins.Device, config plugins.Config, noDriver error) error {
	reason := device.Name + " is not a GPU"
	if noDriver != nil {
		reason = noDriver.Error()
	}
	fmt.Fprintf(os.Stderr, "minhash-cuda: computing on the CPU: %s\n", reason)
	k.fallback = minhash.New()
	return k.fallback.Open(ctx, device, config)
}

// Process prepares a batch, queues it for the GPU and returns; collect does the rest. A
// slot is always free, because there are as many slots as batches in flight.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.fallback != nil {
		return k.fallback.Process(ctx, batch, results)
	}
	slot := <-k.slots
	slot.results, slot.finish = results, results.Defer()
	slot.err = k.gpu.start(slot, batch)
	k.running <- slot // even after an error: batches finish in order
	return nil
}

// collect waits for the batches in order and finishes them.
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
		k.slots <- slot // before finish, because the next batch may arrive right after it
		finish(classify(err))
	}
}

// Trim frees the buffers of idle slots.
func (k *kernel) Trim(context.Context) error {
	var err error
	for range len(k.slots) { // nothing else takes a slot during Trim
		slot := <-k.slots
		err = errors.Join(err, k.gpu.trim(slot))
		k.slots <- slot
	}
	return classify(err)
}

// Report returns how much device memory the slots hold.
func (k *kernel) Report() (r plugins.Report) {
	if k.gpu != nil {
		held := uint64(k.gpu.held.Load())
		r.Memory = plugins.FrameworkMemory{Library: "cuda", Allocated: held, Cached: held}
	}
	return r
}

// Close waits for the batches in flight and frees everything. If the process is killed
// instead, the driver does that.
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
