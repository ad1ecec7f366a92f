package lease

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/internal/owned"
)

// Event is something that became of a lease: allocated, released, refused, or the
// reason why it ended otherwise.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Lease Lease     `json:"lease"`
	// Why is the text of a refusal.
	Why string `json:"why,omitempty"`
}

// The names of events, beside the reasons for which leases end.
const (
	Allocated = "allocated"
	Released  = "released"
	Refused   = "refused"
)

// maxHistory is how large a user's history grows before the older half is put
// aside; two such files are kept.
const maxHistory = 1 << 20

// maxLine is longer than any event.
const maxLine = 64 << 10

// historyPath is this user's own: in a folder like /tmp nobody can append to
// another's file.
func (f *Folder) historyPath() string {
	return filepath.Join(f.path, fmt.Sprintf("history-%d.jsonl", os.Getuid()))
}

// note adds to the history. A history that cannot be written is no reason to
// refuse a lease.
func (f *Folder) note(e Event) {
	path := f.historyPath()
	file, err := owned.Open(path, os.O_WRONLY|os.O_APPEND, 0)
	if os.IsNotExist(err) {
		file, err = owned.Open(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return
	}
	defer file.Close()
	if line, err := json.Marshal(e); err == nil {
		_, _ = file.Write(append(line, '\n'))
	}
	if info, err := file.Stat(); err == nil && info.Size() > maxHistory {
		_ = os.Rename(path, path+".old")
	}
}

// History returns what is remembered of all users, oldest first, at most the last
// n. Lines that make no sense are passed over: they are not ours.
func (f *Folder) History(n int) ([]Event, error) {
	paths, err := filepath.Glob(filepath.Join(f.path, "history-*.jsonl*"))
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, path := range paths {
		file, err := owned.Open(path, os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			var e Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && !e.Time.IsZero() {
				events = append(events, e)
			}
		}
		_ = file.Close()
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events[max(0, len(events)-n):], nil
}
