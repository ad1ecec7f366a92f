package orchestrator

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// JobState is the state of a job.
type JobState string

// The states of a job.
const (
	Running     JobState = "running"
	Interrupted JobState = "interrupted" // the same command resumes it
	Done        JobState = "finished"
)

// Status is what is known about the job of an output.
type Status struct {
	State JobState `json:"state"`
	// Holder is the process that runs it, or that retries it after it has finished.
	Holder string `json:"holder,omitempty"`
	Folder string `json:"folder"`
	// Report is the report of a finished job or, for an unfinished one, what is committed
	// so far.
	Report Report `json:"report"`
	// First is the number of the job's first record, Ranges what is committed of an
	// unfinished job.
	First  int64   `json:"-"`
	Ranges []Range `json:"-"`
}

// Inspect returns the status of the job that writes, or wrote, this output. It changes
// nothing.
func Inspect(output, workDir string) (Status, error) {
	f, err := findJob(output, workDir)
	if err != nil {
		return Status{}, err
	}
	m, err := f.Manifest()
	if err != nil {
		return Status{}, fault.FolderDamaged.Wrap(err)
	}
	if err := f.CheckOwner(output); err != nil {
		return Status{}, err
	}
	s := Status{Folder: f.Path, First: m.Spec.Input.Offset}
	s.Holder = f.Holder()
	held := s.Holder != ""
	s.Report, s.Ranges, err = committed(f, m)
	switch {
	case !errors.Is(err, os.ErrNotExist): // a finished job has no journal, also while it is retried
		if s.State = Interrupted; held {
			s.State = Running
		}
	default:
		s.State = Done
		if s.Report, err = ReadReport(f.Report()); held && errors.Is(err, os.ErrNotExist) { // it has just begun
			s.State, err = Running, nil
		}
		for i := range s.Report.Arrays {
			path := &s.Report.Arrays[i].Path
			*path, _ = m.MovedWith(output, *path)
		}
		if now, with := m.MovedWith(output, m.Spec.Output.Errors); m.Spec.Output.Errors != "" && with && !m.Writes(output) {
			s.Report.Errors = now
		}
	}
	s.Report.Output, s.Report.Folder = output, f.Path // as seen from here
	return s, err
}

// findJob returns the folder of the job that writes, or wrote, this output.
func findJob(output, workDir string) (*folder.Folder, error) {
	path, err := spec.Job(output, workDir)
	if err != nil {
		return nil, err
	}
	f := folder.At(path)
	if _, err := os.Stat(f.Join("job.json")); err != nil {
		return nil, fault.NoJob.New("no job found for %s: %s does not exist", output, f.Join("job.json"))
	}
	return f, nil
}

// ReadReport reads the report of a job from its folder.
func ReadReport(path string) (Report, error) {
	var r Report
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fault.JobFiles.Of(fault.Conflict, "read report: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fault.FolderDamaged.New("%s is damaged: %w", path, err)
	}
	return r, nil
}

// committed returns what an unfinished job has in its journal.
func committed(f *folder.Folder, m *folder.Manifest) (Report, []Range, error) {
	r := Report{
		Input: m.Input.Path, Output: m.Spec.Output.Path, Errors: m.Spec.Output.Errors, Kernel: m.Spec.Kernel.Name,
		Started: m.Created, Folder: f.Path, Blank: m.Cut.Blank,
	}
	state, err := f.State()
	if err != nil {
		return r, nil, err
	}
	tally := tallyOf(state)
	r.In = max(m.Cut.Records, tally.Records)
	r.Uncounted = m.Cut.ChunkRecords > 0 && !state.Complete
	if last, err := ReadReport(f.Report()); err == nil {
		r.Stop, r.Workers, r.Resume = last.Stop, last.Workers, last.Resume
	}
	r.Answers = f.Answers(state)
	r.close(time.Now(), tally)
	r.Rate, r.Computed = 0, 0 // how long it computed is unknown
	return r, finishedRanges(state), nil
}

// Range is a run of finished records in input order.
type Range struct {
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	// Failed of them have failed.
	Failed int64 `json:"failed"`
}

// maxRanges limits how precisely ranges locate failed records: a job may have millions of
// segments.
const maxRanges = 1000

// finishedRanges returns what a journal holds results for. Neighbors without a failed
// record are one range, and so are neighbors of which the first is small.
func finishedRanges(s commit.State) (list []Range) {
	small := 2 * s.Done() / maxRanges
	for _, s := range slices.Concat(s.Output, s.Segments) {
		next := Range{First: s.First, Records: s.Tally.Records, Failed: s.Tally.Failed}
		if n := len(list); n > 0 {
			last := &list[n-1]
			if last.First+last.Records == next.First && (last.Failed+next.Failed == 0 || last.Records < small) {
				last.Records += next.Records
				last.Failed += next.Failed
				continue
			}
		}
		list = append(list, next)
	}
	return list
}
