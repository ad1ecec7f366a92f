package lease

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	// Totals are the counts of the events that were cut from the history.
	Totals *Statistics `json:"totals,omitempty"`
}

// The names of events, in addition to the reasons why leases end.
const (
	Allocated = "allocated"
	Released  = "released"
	Refused   = "refused"
)

// totalled is the first event of a history from which older events were cut.
const totalled = "totals"

// maxHistory is how large a user's history grows before it is rotated, replacing the
// previously rotated one. A new history begins with the totals.
const maxHistory = 1 << 20

// maxLine is longer than any event.
const maxLine = 64 << 10

// historyPath is this user's history: in a folder like /tmp a user cannot append to
// another user's file.
func (f *Folder) historyPath() string {
	return filepath.Join(f.path, fmt.Sprintf("history-%d.jsonl", os.Getuid()))
}

// note appends to the history. It ignores errors: a history that cannot be written
// must not prevent a lease. The caller must not hold the folder's lock.
func (f *Folder) note(events ...Event) {
	var lines []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			return
		}
		lines = append(append(lines, line...), '\n')
	}
	if len(lines) == 0 {
		return
	}
	file, locked, err := f.openHistory()
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(lines)
	if info, err := file.Stat(); err == nil && locked && info.Size() > maxHistory {
		f.cutHistory(file)
	}
}

// historyTime is how long a writer waits for another one. A line takes microseconds,
// but the other process may be stopped, or another user's: all may read the file, and
// therefore lock it. It is a variable so that tests need not wait.
var historyTime = time.Second

// openHistory opens this user's history for appending and locks it, so that no other
// process cuts it meanwhile. If the lock stays taken, it returns the file unlocked: then
// only appending is safe.
func (f *Folder) openHistory() (file *os.File, locked bool, err error) {
	path := f.historyPath()
	for deadline := time.Now().Add(historyTime); ; {
		if file, err = owned.Open(path, os.O_RDWR|os.O_APPEND, 0); os.IsNotExist(err) {
			file, err = owned.Open(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, historyMode)
		}
		if os.IsExist(err) {
			continue // another process has created it
		}
		if err != nil {
			return nil, false, err
		}
		if locked = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil; locked && isAt(file, path) || time.Now().After(deadline) {
			return file, locked && isAt(file, path), nil
		}
		_ = file.Close()
		time.Sleep(time.Millisecond)
	}
}

// isAt reports whether path still refers to the file.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	there, err2 := os.Lstat(path)
	return err == nil && err2 == nil && os.SameFile(open, there)
}

// historyMode is the mode of a new history.
const historyMode = 0o644

// cutHistory rotates the history and begins a new one with the totals of the old one.
// The path exists at all times. The caller must hold the file's lock.
func (f *Folder) cutHistory(file *os.File) {
	path := f.historyPath()
	var totals Statistics
	eachEvent(file.Name(), totals.count)
	line, err := json.Marshal(Event{Time: time.Now(), Event: totalled, Totals: &totals})
	if err != nil {
		return
	}
	_ = os.Remove(path + oldSuffix)
	if os.Link(path, path+oldSuffix) != nil {
		return
	}
	if next, err := owned.Create(path, append(line, '\n'), historyMode, false); err == nil {
		_ = next.Close()
	}
}

const oldSuffix = ".old"

// eachEvent calls take for the events of a history, oldest first. It skips invalid
// lines: gpurun did not write them.
func eachEvent(path string, take func(Event)) {
	file, err := owned.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && !e.Time.IsZero() {
			take(e)
		}
	}
}

// histories are the history files of all users. suffix is a glob pattern for what follows
// the plain name: "" for current files, "*" for rotated ones too.
func (f *Folder) histories(suffix string) []string {
	paths, _ := filepath.Glob(filepath.Join(f.path, "history-*.jsonl"+suffix))
	return paths
}

// History returns the last n events of all users, oldest first.
func (f *Folder) History(n int) ([]Event, error) {
	events := []Event{}
	for _, path := range f.histories("*") {
		if strings.HasSuffix(path, oldSuffix) && sameFile(path, strings.TrimSuffix(path, oldSuffix)) {
			continue // a process died while cutting it
		}
		eachEvent(path, func(e Event) {
			if e.Event != totalled {
				events = append(events, e)
			}
		})
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events[max(0, len(events)-n):], nil
}

func sameFile(a, b string) bool {
	one, err := os.Lstat(a)
	two, err2 := os.Lstat(b)
	return err == nil && err2 == nil && os.SameFile(one, two)
}

// Statistics count all leases ever taken, by how they ended:
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
	if e.Event == totalled && e.Totals != nil {
		s.Allocated += e.Totals.Allocated
		s.Released += e.Totals.Released
		s.OwnerDied += e.Totals.OwnerDied
		s.Expired += e.Totals.Expired
		s.Damaged += e.Totals.Damaged
		s.Refused += e.Totals.Refused
		return
	}
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
	for _, path := range f.histories("") {
		eachEvent(path, s.count) // its totals include the rotated history
	}
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
