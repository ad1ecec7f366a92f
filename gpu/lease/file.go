package lease

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/owned"
)

const (
	fileSuffix = ".lease"
	// keyEnd follows the GPU in a file name, so that the name of an unreadable lease
	// still tells which GPU it holds.
	keyEnd = "~"
)

// fileName is the name of a lease's file, which is never reused.
func fileName(l Lease) string {
	return strings.NewReplacer("/", "_", keyEnd, "_").Replace(l.GPU) + keyEnd + l.ID + fileSuffix
}

// create creates the lease's file and returns it, locked if the lease has an owner.
func (f *Folder) create(l Lease) (*os.File, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	file, err := owned.Create(filepath.Join(f.path, fileName(l)), append(data, '\n'), 0o644, l.Owned)
	if err != nil {
		return nil, f.unusable("write a lease file", err)
	}
	return file, nil
}

// found is a lease as read from its file.
type found struct {
	Lease
	path string
	// ended is why the lease has ended; "" while it is in force.
	ended string
}

// The reasons why a lease ends without being released.
const (
	OwnerDied = "owner died"
	Expired   = "expired"
	Damaged   = "damaged"
)

// read returns every lease, including those that have ended.
func (f *Folder) read(now time.Time) ([]found, error) {
	names, err := owned.Names(f.path, fileSuffix)
	if err != nil {
		return nil, f.unusable("read it", err)
	}
	var all []found
	for _, name := range names {
		path := filepath.Join(f.path, name)
		switch l, err := readFile(path, now); {
		case err == nil:
			all = append(all, l)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, owned.ErrNotRegular):
			// Released just now, or not a lease at all.
		case errors.Is(err, os.ErrPermission):
			all = append(all, found{Lease: unreadable(path), path: path}) // it may be in force
		default:
			return nil, f.unusable("read a lease file", err)
		}
	}
	return all, nil
}

// readFile reads one lease and finds out whether it is in force.
func readFile(path string, now time.Time) (found, error) {
	data, locked, err := owned.Read(path)
	if err != nil {
		return found{}, err
	}
	l := found{path: path}
	damaged := json.Unmarshal(data, &l.Lease) != nil || l.GPU == "" || l.ID == ""
	switch {
	case damaged && locked:
		l.Lease = unreadable(path)
	case damaged:
		l.Lease, l.ended = unreadable(path), Damaged
	case l.Owned && !locked:
		l.ended = OwnerDied
	case !l.Expires.IsZero() && now.After(l.Expires):
		l.ended = Expired
	}
	l.Ended, l.Holders = false, nil
	if l.Owned && l.ended == "" && !damaged {
		if l.Ended = l.Identity.Ended(); l.Ended || !l.Visible() {
			l.Holders = owned.Holders(path)
		}
	}
	return l, nil
}

// unreadable is a lease known only by its file name: it counts as holding the whole
// GPU.
func unreadable(path string) Lease {
	base := strings.TrimSuffix(filepath.Base(path), fileSuffix)
	key, id, _ := strings.Cut(base, keyEnd)
	return Lease{ID: id, Name: "unreadable-" + id, GPU: key, Index: -1, Label: key, Exclusive: true, Owned: true, User: "an unknown user"}
}

// sweep removes leases that have ended and files that were never finished. The caller must hold
// the lock. Another user's file cannot be removed from a folder like /tmp: it stays, and is ignored.
func (f *Folder) sweep(all []found, now time.Time) {
	for _, l := range all {
		if l.ended != "" && os.Remove(l.path) == nil {
			f.record(Event{Event: l.ended, Lease: l.Lease})
		}
	}
	owned.Sweep(f.path, now)
}

// inForce returns the leases that have not ended.
func inForce(all []found) []Lease {
	living := []Lease{}
	for _, l := range all {
		if l.ended == "" {
			living = append(living, l.Lease)
		}
	}
	return living
}

// List returns the leases in force, oldest first. It takes no lock and changes
// nothing.
func (f *Folder) List() ([]Lease, error) {
	all, err := f.read(time.Now())
	if err != nil {
		return nil, err
	}
	living := inForce(all)
	sortLeases(living)
	return living, nil
}
