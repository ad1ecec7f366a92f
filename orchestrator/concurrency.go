package orchestrator

import (
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

const (
	// concurrentGroup is how many records a worker reads at a time for a kernel that
	// computes them one by one. A chunk holds whole groups, so a small job still uses all
	// devices.
	concurrentGroup = 16
	// chunkRounds is how many records for each one in flight a chunk of a stream holds at
	// least: a slow record delays at most two chunks.
	chunkRounds = 64
)

// fitConcurrency checks that the settings suit a kernel that computes records one by one,
// and chooses how many are read at a time.
func (p *prepared) fitConcurrency() error {
	refuse := func(what, setting string) error {
		return fault.New(fault.Usage, "kernel %s computes records one by one (concurrency %d): %s does not combine with it",
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
	// At the end of a chunk, a slow record holds up the next one. So a slot gets one chunk,
	// which idle slots share, unless the parts of the output end where chunks do.
	p.oneChunk = !keepsParts(p.config.Output.Path) && p.config.Batching.ChunksPerGPU == DefaultChunksPerGPU
	return nil
}

// keep keeps the beginning of a task's rest for this worker, which computes its records
// already. done.Rest becomes what others may have; nil if that is nothing. It reports
// whether it kept something.
func (s *slotRun) keep(t *task, done *wire.Done) bool {
	if s.kept != nil || s.idles() {
		return false
	}
	kept := task{chunk: *done.Rest, attempts: t.attempts, tried: t.tried}
	done.Rest = nil
	if s.job.queue.idle() > 0 && done.Begun < kept.chunk.Records {
		head, tail, err := input.SplitAt(kept.chunk, done.Begun)
		if err == nil && tail.Records > 0 {
			kept.chunk, done.Rest = head, &tail
		}
	}
	s.kept = &kept
	return true
}

// giveUpKept returns what was kept for a worker that is lost or must not continue.
func (s *slotRun) giveUpKept() {
	if s.kept != nil {
		s.job.queue.giveBack(*s.kept)
		s.kept = nil
	}
}
