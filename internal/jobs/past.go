package jobs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/chunk"
)

// Ended is a job that has ended.
type Ended struct {
	Entry
	Ended time.Time `json:"ended"`
	// Folder, Total, Done and Answers are as in its last View; zero if it died.
	Folder  string       `json:"folder,omitempty"`
	Total   int64        `json:"total"`
	Done    chunk.Counts `json:"done"`
	Answers int64        `json:"answers,omitempty"`
	// Error is why they are missing.
	Error string `json:"error,omitempty"`
}

const (
	pastFile = "past"
	// maxPast is the size at which the older half of the file is removed.
	maxPast = 256 << 10
)

// remember adds a job to those that have ended. It is a convenience: errors are ignored.
func remember(dir string, e Ended) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	path := filepath.Join(dir, pastFile)
	if info, err := os.Stat(path); err == nil && info.Size() > maxPast {
		if data, err := os.ReadFile(path); err == nil {
			_, data, _ = bytes.Cut(data[len(data)/2:], []byte("\n"))
			if os.WriteFile(path+".new", data, 0o600) == nil {
				_ = os.Rename(path+".new", path)
			}
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(append(line, '\n'))
}

// Past returns this user's jobs that have ended, oldest first, as far as they are
// remembered.
func Past() []Ended {
	var all []Ended
	for _, dir := range readable() {
		data, err := os.ReadFile(filepath.Join(dir, pastFile))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			var e Ended
			if json.Unmarshal(line, &e) == nil && e.ID != "" && !slices.ContainsFunc(all, func(o Ended) bool { return o.ID == e.ID }) {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Ended) int { return a.Ended.Compare(b.Ended) })
	return all
}
