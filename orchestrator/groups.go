package orchestrator

import "github.com/gpurun/gpurun/internal/fault"

// fitGroups decides by which member records are grouped.
func (p *prepared) fitGroups() error {
	switch p.plan.GroupBy = p.config.Batching.GroupBy; p.plan.GroupBy {
	case "":
		p.plan.GroupBy = p.plan.Info.GroupBy
	case NoGrouping:
		p.plan.GroupBy = ""
	}
	if p.config.Batching.Cost > 0 && p.plan.GroupBy == "" {
		return fault.New(fault.Usage, "a batch cost limits batches of grouped records, and these are not grouped: name the member to group by").Set("group-by")
	}
	return nil
}

// windowBatches is how many batches of records a worker groups at a time.
const windowBatches = 16

// chunks returns the desired number of chunks, and what their size should be a multiple
// of. If records are grouped, a chunk should hold whole windows, because a window does not
// reach into the next chunk; but every slot should get a chunk. A slow slot's remainder is
// shared anyway.
func (p *prepared) chunks() (n, unit int) {
	slots, each, unit := len(p.plan.Slots), p.config.Batching.ChunksPerGPU, p.plan.BatchSize
	if p.plan.GroupBy == "" || p.source == nil || slots == 0 {
		return slots * each, unit
	}
	total, known := p.source.Total()
	windows := total / int64(slots*windowBatches*unit) // for each slot
	switch {
	case !known:
	case windows < int64(each):
		each = max(1, int(windows))
	default:
		unit *= windowBatches
	}
	return slots * each, unit
}
