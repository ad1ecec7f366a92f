package lease

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/owned"
)

// Event is something that happened to a lease: allocated, released, refused, or the
// reason why it ended without a release.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Lease Lease     `json:"lease"`
	// Why is the message of a refusal.
	Why string `json:"why,omitempty"`
}

// The names of events, in addition to the reasons why leases end.
const (
	Allocated = "allocated"
	Released  = "released"
	Refused   = "refused"
)

// maxHistory is how large a user's history grows before it replaces the previous one: some
// thousand events.
const maxHistory = 1 << 20

// maxLine is longer than any event.
const maxLine = 64 << 10

// historyPath is this user's history: in a folder like /tmp a user cannot append to
// another user's file.
func (f *Folder) historyPath() string {
	return filepath.Join(f.path, fmt.Sprintf("history-%d.jsonl", os.Getuid()))
}

// record appends an event of now to the history. It waits for no other process, and ignores errors:
// a history that cannot be written must not prevent a lease.
func (f *Folder) record(e Event) {
	e.Time = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	path := f.historyPath()
	file, err := owned.Open(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(append(line, '\n'))
	// The lock keeps another process from replacing the new history as well.
	if info, err := file.Stat(); err == nil && info.Size() > maxHistory && unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		if there, err := os.Lstat(path); err == nil && os.SameFile(info, there) {
			_ = os.Rename(path, path+oldSuffix)
		}
	}
}

const oldSuffix = ".old"

// eachEvent calls use for the events of all users whose history can be read. It skips invalid
// lines: gpurun did not write them.
func (f *Folder) eachEvent(use func(Event)) {
	for _, suffix := range []string{oldSuffix, ""} {
		paths, _ := filepath.Glob(filepath.Join(f.path, "history-*.jsonl"+suffix))
		for _, path := range paths {
			eachLine(path, func(line []byte) {
				var e Event
				if json.Unmarshal(line, &e) == nil && !e.Time.IsZero() {
					use(e)
				}
			})
		}
	}
}

func eachLine(path string, use func([]byte)) {
	file, err := owned.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		use(lines.Bytes())
	}
}

// History returns the last n events of all users, oldest first.
func (f *Folder) History(n int) []Event {
	events := []Event{}
	f.eachEvent(func(e Event) { events = append(events, e) })
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events[max(0, len(events)-n):]
}

// Statistics count the leases of the history, by how they ended:
//
//	Allocated = Held + Released + OwnerDied + Expired + Damaged + Unaccounted
type Statistics struct {
	Allocated int `json:"allocated"`
	Held      int `json:"held"`
	Released  int `json:"released"`
	OwnerDied int `json:"owner_died"`
	Expired   int `json:"expired"`
	Damaged   int `json:"damaged"`
	// Unaccounted leases ended without a record: their files were removed, or the
	// history could not be written.
	Unaccounted int `json:"unaccounted"`
	// Refused is the number of requests that got no lease.
	Refused int `json:"refused"`
}

// count adds one event.
func (s *Statistics) count(e Event) {
	counters := map[string]*int{
		Allocated: &s.Allocated, Released: &s.Released, OwnerDied: &s.OwnerDied,
		Expired: &s.Expired, Damaged: &s.Damaged, Refused: &s.Refused,
	}
	if counter, known := counters[e.Event]; known {
		*counter++
	}
}

// Statistics counts the leases of all users whose history can be read.
func (f *Folder) Statistics() (Statistics, error) {
	var s Statistics
	f.eachEvent(s.count)
	all, err := f.read(time.Now())
	for _, l := range all {
		if l.ended == "" {
			s.Held++
		} else { // not swept yet
			s.count(Event{Event: l.ended})
		}
	}
	ended := s.Held + s.Released + s.OwnerDied + s.Expired + s.Damaged
	s.Allocated = max(s.Allocated, ended) // the history has only the end of some
	s.Unaccounted = s.Allocated - ended
	return s, err
}
