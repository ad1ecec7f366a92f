package cluster

import (
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/files"
)

const submitsDir = "submits"

// Submission is a record of tasks that were given to a scheduler. Each has its own file.
type Submission struct {
	Created time.Time `json:"created"`
	// Engine is the scheduler's name, Command how the user called gpurun.
	Engine  string   `json:"engine"`
	Command []string `json:"command"`
	// Jobs are the scheduler's names of what was submitted.
	Jobs []string `json:"jobs,omitempty"`
	// Resubmit is the shell command that submits some shards again; %s stands for their
	// numbers as an ArrayText.
	Resubmit string `json:"resubmit,omitempty"`
}

// AddSubmission records a submission.
func (r *Run) AddSubmission(s Submission) error {
	if err := os.MkdirAll(r.join(submitsDir), files.PrivateDirMode); err != nil {
		return storage("record the submission", err)
	}
	if s.Created.IsZero() {
		s.Created = time.Now().UTC()
	}
	name := s.Created.Format("20060102-150405.000000000") + "-" + randomName() + ".json"
	return writeJSON(r.join(submitsDir, name), s)
}

// Submissions returns all of them, in order.
func (r *Run) Submissions() (list []Submission, err error) {
	paths, err := filepath.Glob(r.join(submitsDir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var s Submission
		if err := readJSON(path, &s); err != nil {
			return nil, storage("read submission", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// LastSubmission returns the latest.
func (r *Run) LastSubmission() (Submission, bool) {
	list, err := r.Submissions()
	if err != nil || len(list) == 0 {
		return Submission{}, false
	}
	return list[len(list)-1], true
}
