package orchestrator

import (
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
)

// fitGroups decides by which member records are grouped.
func (p *prepared) fitGroups() error {
	switch p.plan.GroupBy = p.config.Batching.GroupBy; p.plan.GroupBy {
	case "":
		p.plan.GroupBy = p.plan.Info.GroupBy
	case NoGrouping:
		p.plan.GroupBy = ""
	}
	if p.config.Batching.Cost > 0 && p.plan.GroupBy == "" {
		return fault.KernelUnsuited.New("a batch cost limits batches of grouped records, and these are not grouped: name the member to group by").Set("group-by")
	}
	if p.plan.GroupBy != "" {
		p.plan.Flight += ", grouped by " + p.plan.GroupBy
	}
	return nil
}

// window returns how many batches are read at a time.
func (p *Plan) window() int {
	if p.GroupBy == "" {
		return 1
	}
	return wire.WindowBatches
}

// grownChunks is the number of chunks per slot if batches grow: a batch does not reach into the
// next chunk. Chunks of a stream are grownRecords times as large.
const (
	grownChunks  = 4
	grownRecords = 8
)

// manyWindows is how many windows a slot must have so that its chunks are whole ones: with
// fewer, the slots would get unequal shares.
const manyWindows = 4

// chunks returns the desired number of chunks, and what their size should be a multiple
// of. If records are grouped, a chunk should hold whole windows, because a window does not
// reach into the next chunk; but every slot should get a chunk. A slow slot's remainder is
// shared anyway.
func (p *prepared) chunks() (n, unit int) {
	slots, each, unit := len(p.plan.Slots), p.config.Batching.ChunksPerGPU, p.plan.BatchSize
	if each == 1 { // the static split: ceil(n / slots)
		return slots, 1
	}
	if p.plan.GrowBatch && each == DefaultChunksPerGPU {
		each = grownChunks
	}
	if p.oneChunk {
		each = 1
	}
	if p.plan.GroupBy == "" || !p.cut.Counted() || slots == 0 {
		return slots * each, unit
	}
	windows := p.cut.Records / int64(slots*wire.WindowBatches*unit) // for each slot
	if windows >= manyWindows {
		unit *= wire.WindowBatches
	}
	return slots * max(1, int(min(int64(each), windows))), unit
}
