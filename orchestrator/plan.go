package orchestrator

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/wire"
)

// Plan is what a job would do, determined before anything starts.
type Plan struct {
	Input  string `json:"input"`
	Output string `json:"output,omitempty"`
	// Errors is the file for the failed records; if empty, they stay in the output. Arrays are
	// the files of columns that are stored as NumPy arrays, and their masks.
	Errors string         `json:"errors,omitempty"`
	Arrays []PlannedArray `json:"arrays,omitempty"`
	// Files is the number of input files; 0 if a stream is among them.
	Files int `json:"files,omitempty"`
	// Format is what lines are: openai-batch; empty for any JSON.
	Format string `json:"format,omitempty"`
	Kernel string `json:"kernel"`
	// Info is how the kernel describes itself.
	Info KernelInfo `json:"info"`
	// Slots are the workers with their devices.
	Slots []Slot `json:"slots"`
	// Records is the number of records, -1 for a stream or for a file that is counted
	// while the job runs.
	Records int64 `json:"records"`
	// Chunks is the number of chunks and ChunkRecords the size of all but the last; 0
	// if not known in advance.
	Chunks       int64 `json:"chunks"`
	ChunkRecords int64 `json:"chunk_records"`
	BatchSize    int   `json:"batch_size"`
	// GrowBatch: workers enlarge the batches, because each has a cost of its own.
	GrowBatch bool `json:"grow_batch,omitempty"`
	// GroupBy is the member by whose size records are grouped into batches, empty for none.
	GroupBy string `json:"group_by,omitempty"`
	// Fetch are the files that workers fetch for records, FetchRoot the folder of those
	// that records name by path.
	Fetch     []FetchMember `json:"fetch,omitempty"`
	FetchRoot string        `json:"fetch_root,omitempty"`
	// Scaling is how many workers each device starts with and may get, if gpurun
	// chooses their number.
	Scaling []PlannedScaling `json:"scaling,omitempty"`
	// Resumed is how many records earlier runs have done.
	Resumed int64 `json:"resumed"`
	// Notes are lines for the user.
	Notes []string `json:"notes"`
}

// PlannedArray is a file for a column of the results.
type PlannedArray struct {
	Path   string `json:"path"`
	Column string `json:"column"`
	// Mask: the file has a 1 for the row of each failed record, instead of values.
	Mask bool `json:"mask,omitempty"`
}

// Slot is a place for one worker.
type Slot struct {
	Number int `json:"slot"`
	// Name is the label in bars and logs: "GPU 0", "GPU 0 #2".
	Name    string       `json:"name"`
	Devices []gpu.Device `json:"devices"`
	// Pin is added to the worker's environment.
	Pin []string `json:"pin"`
	// Threads is the slot's share of the CPU cores.
	Threads int `json:"threads"`

	rank  int  // among the slots of its device, from 0
	added bool // gpurun may remove it, because others on its device work
}

// DeviceOf returns the name of the first device of a slot with this name: "GPU 0" for
// "GPU 0+1 #2".
func DeviceOf(slotName string) string {
	name, _, _ := strings.Cut(slotName, " #")
	name, _, _ = strings.Cut(name, "+")
	return name
}

// key is the name of the device, the same for all slots on it.
func (s Slot) key() string { return s.Devices[0].String() }

// device describes the slot to a kernel.
func (s Slot) device() wire.Device {
	first := s.Devices[0]
	d := wire.Device{Name: s.Name, Index: first.Index, UUID: first.UUID, Memory: first.Memory, Threads: s.Threads}
	if first.Kind == gpu.GPU {
		d.GPU, d.Count = true, len(s.Devices)
	}
	return d
}

// MakePlan returns what Run would do with the same Config, using the same decisions. It
// starts the kernel once, without a device, to ask what it needs, asks Config.Devices.Claim for
// a preview, and leaves nothing behind.
func MakePlan(ctx context.Context, config Config) (Plan, error) {
	config, err := config.withDefaults()
	if err != nil {
		return Plan{}, err
	}
	if err := checkOutputFolders(config); err != nil {
		return Plan{}, err
	}
	state := stateNote(ctx, config)
	if err := checkOutputs(config); err != nil && len(state) == 0 {
		return Plan{}, err
	}
	p, err := prepare(ctx, config, nil, true, func(string) {})
	if err != nil {
		return Plan{}, err
	}
	defer p.close()
	p.plan.Notes = append(p.plan.Notes, state...)
	return p.plan, nil
}

// stateNote says that the job has finished, or was begun by an earlier run.
func stateNote(ctx context.Context, c Config) []string {
	if c.Output.Path == "" || c.Output.Force || c.Resume.Fresh {
		return nil
	}
	status, err := Inspect(c.Output.Path, c.Resume.WorkDir)
	if err != nil {
		return nil
	}
	c.Display.OnEvent = nil
	if status.State == Interrupted {
		return []string{"an earlier run was interrupted: the job resumes where it stopped" + reachedNote(status.Report)}
	}
	if _, done := findFinished(ctx, c, &folder{path: status.Folder}); done && status.State == Done {
		return []string{"the job is already finished: nothing will be computed"}
	}
	return nil
}

// reachedNote says how far an interrupted job is.
func reachedNote(r Report) string {
	switch done := r.In - r.Pending; {
	case r.Answers > 0:
		return fmt.Sprintf(" (%d records done, answers of %d more logged)", done, r.Answers)
	case done > 0:
		return fmt.Sprintf(" (%d records done)", done)
	}
	return ""
}

func (p *prepared) describeChunks() {
	if p.source == nil {
		return
	}
	total, known := p.source.Total()
	if !known {
		return
	}
	p.plan.Records = total
	if p.earlier != nil {
		p.plan.Resumed = p.earlier.state.Done()
		return
	}
	chunks, unit := p.chunks()
	p.plan.ChunkRecords = chunk.Size(total, chunks, unit)
	if p.plan.ChunkRecords > 0 {
		p.plan.Chunks = (total + p.plan.ChunkRecords - 1) / p.plan.ChunkRecords
	}
}

// usefulSlots returns how many workers have something to do: with more workers than
// chunks, kernels would be opened for nothing.
func (p *prepared) usefulSlots() int {
	useful := int64(len(p.plan.Slots))
	switch {
	case p.source == nil || p.plan.Records < 0: // not known yet
	case p.earlier == nil:
		useful = min(useful, p.plan.Chunks)
	default: // how much must be computed again is determined later
		batch := int64(p.plan.BatchSize)
		useful = min(useful, (p.plan.Records+batch-1)/batch)
	}
	return int(useful)
}
