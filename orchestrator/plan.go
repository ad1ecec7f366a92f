package orchestrator

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/plugins/kernel"
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
	Info kernel.Info `json:"info"`
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
	// Unit is what a kernel computes at a time, "batches" or "records"; Flight describes what
	// each worker has in flight, such as "batches of 128 or more" or "64 records in flight".
	Unit   string `json:"unit"`
	Flight string `json:"flight"`
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

// DeviceOf returns the name of the first device of a slot with this name: "GPU 0" for
// "GPU 0+1 #2".
func DeviceOf(slotName string) string {
	name, _, _ := strings.Cut(slotName, " #")
	name, _, _ = strings.Cut(name, "+")
	return name
}

// MakePlan returns what Run would do with the same Config, using the same decisions. It
// starts the kernel once, without a device, to ask what it needs, asks Config.Devices.Claim for
// a preview, and leaves nothing behind.
func MakePlan(ctx context.Context, config Config) (Plan, error) {
	o, err := config.open()
	if err != nil {
		return Plan{}, err
	}
	o.preview = true
	if err := o.CheckFolders(); err != nil {
		return Plan{}, err
	}
	state := stateNote(ctx, o)
	if err := o.CheckOutputs(); err != nil && len(state) == 0 {
		return Plan{}, err
	}
	p, err := prepare(ctx, o, folder.NewEarlier(), func(string) {})
	if err != nil {
		return Plan{}, err
	}
	defer p.close()
	p.plan.note(state...)
	return p.plan, nil
}

// stateNote says that the job has finished, or was begun by an earlier run.
func stateNote(ctx context.Context, c *order) []string {
	if c.Output.Path == "" || c.Output.Force || c.Resume.Fresh {
		return nil
	}
	status, err := Inspect(c.Output.Path, c.Resume.WorkDir)
	if err != nil {
		return nil
	}
	if status.State == Interrupted {
		text, done := "an earlier run was interrupted: the job resumes where it stopped", status.Report.In-status.Report.Pending
		if answers := status.Report.Answers; answers > 0 {
			text += fmt.Sprintf(" (%d records done, answers of %d more logged)", done, answers)
		} else if done > 0 {
			text += fmt.Sprintf(" (%d records done)", done)
		}
		return []string{text}
	}
	if _, done := isFinished(ctx, c, folder.At(status.Folder)); done && status.State == Done {
		return []string{"the job is already finished: nothing will be computed"}
	}
	return nil
}

// note adds lines for the user.
func (p *Plan) note(lines ...string) { p.Notes = append(p.Notes, lines...) }

// usefulSlots returns how many workers have something to do: with more workers than
// chunks, kernels would be opened for nothing.
func (p *Plan) usefulSlots() int {
	useful := int64(len(p.Slots))
	switch {
	case p.Records < 0: // not known yet
	case p.Chunks == 0: // how much an earlier run has left is determined later
		useful = min(useful, chunk.CeilDiv(p.Records, int64(p.BatchSize)))
	default:
		useful = min(useful, p.Chunks)
	}
	return int(useful)
}
