// Package chain is the kernel that runs several kernels as a pipeline on one device. Each
// step gets the lines that the previous step returned.
//
//	gpurun run --step clean.py --step ./embed in.jsonl -o out.jsonl
//
//	worker ──► chain ──► python (clean.py)     one process per step
//	                 └─► ./embed
//
// The steps overlap: while one computes a batch, the next computes the batch before it.
//
// A record that any step drops is dropped. A record that a step rejects fails with the
// name of that step, and the worker keeps the original record. If a step returns several
// lines for a record, the next step gets several records; if one of them fails, the
// original record fails. Adjacent Python files count as one step, because the kernel
// python runs them in one process.
package chain

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// New returns the kernel.
func New() plugins.Kernel { return &kernel{} }

type kernel struct {
	steps    []step
	info     plugins.Info
	nanFails bool

	batches chan<- *run    // to the first step
	flow    sync.WaitGroup // the goroutines that pass them from step to step
}

// step is one running kernel of the chain.
type step struct {
	resolve.ChainStep
	process *process.Process
	// inFlight is how many batches it accepts at a time.
	inFlight int
}

// Describe starts the steps and combines their requirements. They keep running for Open.
func (k *kernel) Describe(ctx context.Context, config plugins.Config) (plugins.Info, error) {
	if k.steps != nil {
		return k.info, nil
	}
	var c resolve.ChainConfig
	if err := config.Decode(&c); err != nil {
		return plugins.Info{}, err
	}
	if len(c.Steps) == 0 {
		return plugins.Info{}, fault.NoKernel.Of(fault.Incompatible, "the kernel chain needs steps").Set("step KERNEL")
	}
	k.nanFails = c.NaN == "error"
	var info plugins.Info
	for i, one := range c.Steps {
		process, err := start(ctx, one)
		if err != nil {
			return plugins.Info{}, inStep(err, one.Name)
		}
		k.steps = append(k.steps, step{ChainStep: one, process: process})
		needs, err := process.Describe(ctx, plugins.Config(one.Config))
		if err != nil {
			return plugins.Info{}, inStep(err, one.Name)
		}
		if needs.Concurrency > 0 {
			return plugins.Info{}, fault.KernelUnsuited.New("kernel %s computes records one by one (concurrency %d), which does not work as a step of a chain: "+
				"run it as a job of its own", one.Name, needs.Concurrency).InStep(one.Name)
		}
		needs.InFlight = max(1, needs.InFlight)
		k.steps[i].inFlight = needs.InFlight + needs.Ahead
		if i == 0 {
			info = plugins.Info{Name: "chain", GrowBatch: true, InFlight: -1, Inputs: needs.Inputs, GroupBy: needs.GroupBy, ReadsFetched: needs.ReadsFetched}
		}
		info = info.Then(needs)
		info.InFlight += needs.InFlight + 1 // one batch in transit, so that the step never waits
		info.Ahead += needs.Ahead
	}
	k.info = info
	return info, nil
}

// start starts a step's process, with its socket in the same folder as this one's.
func start(ctx context.Context, one resolve.ChainStep) (*process.Process, error) {
	return process.Start(ctx, process.Command{
		Path: one.Path, Args: one.Args, Env: os.Environ(), Log: os.Stderr,
		SocketDir: os.Getenv("PLUGIN_UNIX_SOCKET_DIR"),
	})
}

// inStep adds the name of the step to an error.
func inStep(err error, name string) error {
	if e := fault.As(err); e != nil {
		return e.InStep(name)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.KernelException.Of(fault.Unknown, "%w", err).InStep(name)
}

// Open opens the steps one after the other.
func (k *kernel) Open(ctx context.Context, device plugins.Device, config plugins.Config) error {
	if _, err := k.Describe(ctx, config); err != nil {
		return err
	}
	for _, one := range k.steps {
		if err := one.process.Open(ctx, device, plugins.Config(one.Config)); err != nil {
			return inStep(err, one.Name)
		}
	}
	k.startFlow()
	return nil
}

// Report returns the reports of all steps; warnings begin with the name of the step.
func (k *kernel) Report() (all plugins.Report) {
	for _, one := range k.steps {
		r := one.process.Report()
		all.Sources = append(all.Sources, r.Sources...)
		for _, text := range r.Warnings {
			all.Warnings = append(all.Warnings, one.Name+": "+text)
		}
		all.Imports = all.Imports.Then(r.Imports)
	}
	return all
}

// Trim trims every step.
func (k *kernel) Trim(ctx context.Context) error {
	var failed []error
	for _, one := range k.steps {
		if _, _, err := one.process.Trim(ctx); err != nil {
			failed = append(failed, inStep(err, one.Name))
		}
	}
	return errors.Join(failed...)
}

// Close closes the steps in reverse order.
func (k *kernel) Close() error {
	if k.batches != nil {
		close(k.batches)
		k.batches = nil
	}
	defer k.flow.Wait() // closing the steps ends all waits for them
	var failed []error
	for _, one := range slices.Backward(k.steps) {
		if err := one.process.Close(); err != nil {
			failed = append(failed, err)
		}
	}
	k.steps = nil
	return errors.Join(failed...)
}
