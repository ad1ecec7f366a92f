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

// Event is something that became of a lease: allocated, released, refused, or the
// reason why it ended otherwise.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Lease Lease     `json:"lease"`
	// Why is the text of a refusal.
	Why string `json:"why,omitempty"`
	// Totals are what was cut from a history before its first event.
	Totals *Statistics `json:"totals,omitempty"`
}

// The names of events, beside the reasons for which leases end.
const (
	Allocated = "allocated"
	Released  = "released"
	Refused   = "refused"
)

// totalled is the event that begins a history from which older ones were cut.
const totalled = "totals"

// maxHistory is how large a user's history grows before it is put aside, in place of
// the one that was put aside before. A new one begins with the totals.
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
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	file, locked, err := f.openHistory()
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(append(line, '\n'))
	if info, err := file.Stat(); err == nil && locked && info.Size() > maxHistory {
		f.cutHistory(file)
	}
}

// historyTime is how long a writer waits for another. A line takes microseconds, but
// the other may be stopped.
const historyTime = 10 * time.Second

// openHistory opens this user's history to append to it, and locks it, so that nobody
// cuts it meanwhile. One that somebody keeps locked is not: then only appending is
// safe.
func (f *Folder) openHistory() (file *os.File, locked bool, err error) {
	path := f.historyPath()
	for deadline := time.Now().Add(historyTime); ; {
		if file, err = owned.Open(path, os.O_RDWR|os.O_APPEND, 0); os.IsNotExist(err) {
			file, err = owned.Open(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, historyMode)
		}
		if os.IsExist(err) {
			continue // somebody else has made it
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

// isAt reports whether the file still has that name.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	there, err2 := os.Lstat(path)
	return err == nil && err2 == nil && os.SameFile(open, there)
}

// historyMode is that of a new history.
const historyMode = 0o644

// cutHistory puts the history aside, and begins a new one with what the old one
// counted. Its name always has a file: the caller holds its lock.
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

// eachEvent hands over the events of a history, oldest first. Lines that make no sense
// are skipped: they are not ours.
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

// histories are the files of all users, with those that were put aside or without.
func (f *Folder) histories(suffix string) []string {
	paths, _ := filepath.Glob(filepath.Join(f.path, "history-*.jsonl"+suffix))
	return paths
}

// History returns what is remembered of all users, oldest first, at most the last n.
func (f *Folder) History(n int) ([]Event, error) {
	events := []Event{}
	for _, path := range f.histories("*") {
		if strings.HasSuffix(path, oldSuffix) && sameFile(path, strings.TrimSuffix(path, oldSuffix)) {
			continue // somebody died while cutting it
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
