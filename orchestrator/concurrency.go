package orchestrator

import (
	"fmt"

	"github.com/gpurun/gpurun/internal/fault"
)

const (
	// concurrentGroup is how many records a worker reads at a time for a kernel that
	// computes them one by one. A chunk holds whole groups, so a small job still uses all
	// devices.
	concurrentGroup = 16
	// chunkRounds is how many records for each one in flight a chunk of a stream holds at
	// least.
	chunkRounds = 64
)

// fitConcurrency checks that the settings suit a kernel that computes records one by one,
// and chooses how many are read at a time.
func (p *prepared) fitConcurrency() error {
	refuse := func(what, setting string) error {
		return fault.KernelUnsuited.New("kernel %s computes records one by one (concurrency %d): %s does not combine with it",
			p.config.Kernel.Name, p.plan.Info.Concurrency, what).Set(setting)
	}
	switch batching := p.config.Batching; {
	case batching.Auto:
		return refuse("searching for the best batch size", "batch-size")
	case batching.GroupBy != "" && batching.GroupBy != NoGrouping:
		return refuse("grouping records", "group-by")
	case batching.Cost > 0:
		return refuse("a batch cost", "batch-cost")
	}
	setDefault(&p.plan.BatchSize, concurrentGroup)
	p.plan.Unit, p.plan.Flight = "records", fmt.Sprintf("%d records in flight", p.plan.Info.Concurrency)
	// Idle slots share the chunk of a busy one, so a slot gets a single chunk unless the parts
	// of the output end where chunks do.
	p.oneChunk = p.config.Results.PartBytes == 0 && p.config.Batching.ChunksPerGPU == DefaultChunksPerGPU
	return nil
}
