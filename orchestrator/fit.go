package orchestrator

import (
	"cmp"
	"fmt"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// lane is how the kernel of a job computes: batches, or records one by one.
type lane struct {
	fleet.Lane
	window   int      // how many batches a worker reads at a time
	least    int64    // records of a chunk of a stream
	oneChunk bool     // each slot gets one chunk
	grouped  []string // the member by whose size records are grouped, if any
	counts   bool     // the kernel counts requests and tokens
}

const (
	// concurrentGroup is how many records a worker reads at a time for a kernel that
	// computes them one by one. A chunk holds whole groups, so a small job still uses all
	// devices.
	concurrentGroup = 16
	// chunkRounds is how many records for each one in flight a chunk of a stream holds at
	// least, chunkBatches how many batches.
	chunkRounds  = 64
	chunkBatches = 16
	// grownChunks is the number of chunks per slot if batches grow: a batch does not reach into the
	// next chunk. Chunks of a stream are grownRecords times as large.
	grownChunks  = 4
	grownRecords = 8
	// manyWindows is how many windows a slot must have so that its chunks are whole ones: with
	// fewer, the slots would get unequal shares.
	manyWindows = 4
)

// fit matches the devices and the settings with what the kernel says of itself, and cuts an input
// that is counted.
func (p *prepared) fit() (err error) {
	if p.plan.Info.NoDevice {
		p.staff.useNoDevice()
	}
	if err := p.staff.fitDevices(); err != nil {
		return err
	}
	fit := p.config.fitBatches
	if p.plan.Info.Concurrency > 0 {
		fit = p.config.fitRecords
	}
	if p.lane, err = fit(&p.plan); err != nil {
		return err
	}
	if err := p.config.fitMembers(p.plan, p.lane); err != nil {
		return err
	}
	return p.cutCounted()
}

// fitRecords is for a kernel that computes records one by one.
func (o *order) fitRecords(plan *Plan) (lane, error) {
	n := plan.Info.Concurrency
	for _, one := range []struct {
		set           bool
		what, setting string
	}{
		{o.Batching.Auto, "searching for the best batch size", "batch-size"},
		{o.Batching.GroupBy != "" && o.Batching.GroupBy != NoGrouping, "grouping records", "group-by"},
		{o.Batching.Cost > 0, "a batch cost", "batch-cost"},
	} {
		if one.set {
			return lane{}, fault.KernelUnsuited.New("kernel %s computes records one by one (concurrency %d): %s does not combine with it", plan.Kernel, n, one.what).Set(one.setting)
		}
	}
	plan.BatchSize = cmp.Or(o.Batching.Size, plan.Info.BatchSize, concurrentGroup)
	plan.Unit, plan.Flight = "records", fmt.Sprintf("%d records in flight", n)
	return lane{
		Lane: fleet.RecordLane(n, o.Failures.Retries), window: 1, counts: true,
		least: max(int64(chunkBatches*plan.BatchSize), int64(chunkRounds*n)),
		// Idle slots share the chunk of a busy one, so a slot gets a single chunk unless the parts
		// of the output end where chunks do.
		oneChunk: !o.Results.EndsWithChunks() && o.Batching.ChunksPerGPU == spec.DefaultChunksPerGPU,
	}, nil
}

// fitBatches is for a kernel that computes batches.
func (o *order) fitBatches(plan *Plan) (lane, error) {
	info, l := plan.Info, lane{Lane: fleet.BatchLane(), window: 1}
	if setting := limitOf(o.Resume); setting != "" {
		return l, fault.JobFiles.Of(fault.Usage, "kernel %s computes batches, in which gpurun cannot count requests and tokens; a limit needs a kernel that computes records one by one",
			plan.Kernel).Set(setting)
	}
	plan.BatchSize = cmp.Or(o.Batching.Size, info.BatchSize, spec.DefaultBatchSize)
	plan.Unit, plan.Flight = "batches", fmt.Sprintf("batches of %d", plan.BatchSize)
	batches := chunkBatches
	switch plan.GroupBy = cmp.Or(o.Batching.GroupBy, info.GroupBy); plan.GroupBy {
	default:
		l.grouped, l.window = []string{plan.GroupBy}, wire.WindowBatches
		plan.Flight += ", grouped by " + plan.GroupBy
	case "", NoGrouping:
		if plan.GroupBy = ""; o.Batching.Cost > 0 {
			return l, fault.KernelUnsuited.New("a batch cost limits batches of grouped records, and these are not grouped: name the member to group by").Set("group-by")
		}
		if plan.GrowBatch = info.GrowBatch && info.BatchSize == 0 && o.Batching.Size == 0 && !o.Batching.Auto; plan.GrowBatch {
			plan.Flight += " or more"
			batches *= grownRecords
		}
	}
	l.least = int64(batches * plan.BatchSize)
	return l, nil
}

// fitMembers refuses to fetch files for a kernel that does not read them, and columns that leave
// out a member that the job itself reads.
func (o *order) fitMembers(plan Plan, l lane) error {
	if len(o.Fetch.Members) > 0 && !plan.Info.ReadsFetched {
		return fault.KernelUnsuited.New("kernel %s does not read fetched files: use a Python kernel, openai: or serve: with images, or one that declares that it reads them", plan.Kernel).Set("fetch")
	}
	for _, one := range []struct {
		names []string
		use   string
	}{{o.fetchFields(), "which names the files to fetch"}, {l.grouped, "by which records are grouped"}} {
		for _, name := range one.names {
			if !o.Input.Reads(name) {
				return fault.NoSuchColumn.New("the columns to read lack %q, %s", name, one.use).Set("columns")
			}
		}
	}
	return nil
}

// fetchFields are the members of a record that name files.
func (o *order) fetchFields() (fields []string) {
	for _, m := range o.Fetch.Members {
		fields = append(fields, m.Field)
	}
	return fields
}

// chunks returns the desired number of chunks of an input with this many records, -1 if that is
// unknown, and what their size should be a multiple of. If records are grouped, a chunk should
// hold whole windows, because a window does not reach into the next chunk; but every slot should
// get a chunk. A slow slot's remainder is shared anyway.
func (p *prepared) chunks(records int64) (n, unit int) {
	slots, each, unit := len(p.plan.Slots), p.config.Batching.ChunksPerGPU, p.plan.BatchSize
	if each == 1 { // the static split: ceil(n / slots)
		return slots, 1
	}
	if p.plan.GrowBatch && each == spec.DefaultChunksPerGPU {
		each = grownChunks
	}
	if p.lane.oneChunk {
		each = 1
	}
	if p.lane.window == 1 || records < 0 || slots == 0 {
		return slots * each, unit
	}
	windows := records / int64(slots*p.lane.window*unit) // for each slot
	if windows >= manyWindows {
		unit *= p.lane.window
	}
	return slots * max(1, int(min(int64(each), windows))), unit
}

// cutCounted cuts an input that was counted, and describes the chunks.
func (p *prepared) cutCounted() (err error) {
	if p.count != nil {
		chunks, unit := p.chunks(p.count.Records())
		if p.cut, err = p.count.Cut(chunks, unit); err != nil {
			return err
		}
		p.plan.Chunks, p.plan.ChunkRecords = int64(len(p.cut.Chunks)), chunk.Size(p.cut.Records, chunks, unit)
	}
	if p.cut.Counted() {
		p.plan.Records, p.plan.Resumed = p.cut.Records, p.earlier.State.Done()
	}
	return nil
}
