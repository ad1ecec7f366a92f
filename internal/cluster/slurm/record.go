package slurm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// Record is what one submission gave to Slurm. Each has a file of its own.
type Record struct {
	Created time.Time   `json:"created"`
	Arrays  []Submitted `json:"arrays,omitempty"`
	Merge   string      `json:"merge,omitempty"`
}

// Submitted is an array job in Slurm's queue.
type Submitted struct {
	Job    string `json:"job"`
	Offset int    `json:"offset"`
	Script string `json:"script"`
}

// Jobs returns the ids of the array jobs.
func (r Record) Jobs() (jobs []string) {
	for _, array := range r.Arrays {
		jobs = append(jobs, array.Job)
	}
	return jobs
}

// Resubmit returns the command that submits some shards again, with %s in the place of
// their numbers; "" if several arrays count them differently.
func (r Record) Resubmit() string {
	if len(r.Arrays) != 1 || r.Arrays[0].Offset != 0 {
		return ""
	}
	return "sbatch --array=%s " + Quote(r.Arrays[0].Script)
}

// Records reads all records in a folder, the oldest first. A folder that does not exist
// has none.
func Records(dir string) (records []Record, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fault.Slurm.New("%s: %w", dir, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fault.RunDamaged.Of(fault.Storage, "read the record of an earlier submission: %w", err)
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fault.RunDamaged.New("the record of an earlier submission is damaged: %s: %w", path, err)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int { return a.Created.Compare(b.Created) })
	return records, nil
}
