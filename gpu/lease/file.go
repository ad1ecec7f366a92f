package lease

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	fileSuffix  = ".lease"
	asidePrefix = ".new-"
	// keyEnd stands in a file's name behind the GPU: a lease whose file cannot be
	// read still says what it holds.
	keyEnd = "~"
	// maxFile bounds what is read of a file that anybody may have written.
	maxFile = 64 << 10
	// asideAge is how old a file must be that was written aside and never got its
	// name: its writer is dead, not slow.
	asideAge = time.Minute
)

// fileName is a lease's, never used twice.
func fileName(l Lease) string {
	return strings.NewReplacer("/", "_", keyEnd, "_").Replace(l.GPU) + keyEnd + l.ID + fileSuffix
}

func randomID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// create makes the lease's file and returns it, locked if the lease has an owner.
// It is locked before anybody can see it, so nobody takes it for a dead one's.
func (f *Folder) create(l Lease) (*os.File, error) {
	aside := filepath.Join(f.path, asidePrefix+l.ID)
	file, err := openSafely(aside, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, f.unusable("write a lease", err)
	}
	if err := f.fill(file, l, aside); err != nil {
		_ = os.Remove(aside)
		_ = file.Close()
		return nil, f.unusable("write a lease", err)
	}
	return file, nil
}

func (f *Folder) fill(file *os.File, l Lease, aside string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil { // all must be able to read it
		return err
	}
	if _, err := file.Write(append(data, '\n')); err != nil {
		return err
	}
	if l.Owned {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("lock it: %w", err)
		}
	}
	return os.Rename(aside, filepath.Join(f.path, fileName(l)))
}

// found is a lease file as it was read.
type found struct {
	Lease
	path string
	// ended says why the lease is over; "" while it holds.
	ended string
}

// The reasons why a lease is over without having been given back.
const (
	endedDead    = "owner died"
	endedExpired = "expired"
	endedDamaged = "damaged"
)

// read returns every lease file, those included whose lease is over.
func (f *Folder) read(now time.Time) ([]found, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, f.unusable("read it", err)
	}
	var all []found
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), fileSuffix) {
			continue
		}
		path := filepath.Join(f.path, entry.Name())
		switch l, err := readFile(path, now); {
		case err == nil:
			all = append(all, l)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, errNotRegular):
			// Given back just now; or no lease, whatever it is.
		case errors.Is(err, os.ErrPermission):
			all = append(all, found{Lease: unreadable(path), path: path}) // it may well hold
		default:
			return nil, f.unusable("read a lease", err)
		}
	}
	return all, nil
}

// readFile reads one lease and finds out whether it holds.
func readFile(path string, now time.Time) (found, error) {
	file, err := openSafely(path, os.O_RDONLY, 0)
	if err != nil {
		return found{}, err
	}
	defer file.Close()
	l := found{path: path}
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return l, err
	}
	damaged := json.Unmarshal(data, &l.Lease) != nil || l.GPU == "" || l.ID == ""
	locked, err := isLocked(file)
	if err != nil {
		return l, err
	}
	switch {
	case damaged && locked:
		l.Lease = unreadable(path)
	case damaged:
		l.Lease, l.ended = unreadable(path), endedDamaged
	case l.Owned && !locked:
		l.ended = endedDead
	case !l.Expires.IsZero() && now.After(l.Expires):
		l.ended = endedExpired
	}
	return l, nil
}

// isLocked reports whether somebody holds the file's lock. It asks for a shared
// one: two who ask at once must not take each other for the owner.
func isLocked(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err == nil {
		_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	}
	return false, err
}

// unreadable is a lease of which only the name of its file is known: it holds all
// of that GPU.
func unreadable(path string) Lease {
	base := strings.TrimSuffix(filepath.Base(path), fileSuffix)
	key, id, _ := strings.Cut(base, keyEnd)
	return Lease{ID: id, Name: "unreadable-" + id, GPU: key, Index: -1, Label: key, Exclusive: true, Owned: true, User: "somebody"}
}

// sweep removes what is over, and what was never finished; the caller holds the
// lock. Another user's file cannot be removed from a folder like /tmp: it stays,
// and means nothing.
func (f *Folder) sweep(all []found, now time.Time) (living []Lease) {
	for _, l := range all {
		if l.ended == "" {
			living = append(living, l.Lease)
			continue
		}
		if os.Remove(l.path) == nil {
			f.note(Event{Time: now, Event: l.ended, Lease: l.Lease})
		}
	}
	asides, _ := filepath.Glob(filepath.Join(f.path, asidePrefix+"*"))
	for _, path := range asides {
		if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > asideAge {
			_ = os.Remove(path)
		}
	}
	return living
}

// List returns the leases that hold, oldest first. It takes no lock and changes
// nothing.
func (f *Folder) List() ([]Lease, error) {
	all, err := f.read(time.Now())
	if err != nil {
		return nil, err
	}
	var living []Lease
	for _, l := range all {
		if l.ended == "" {
			living = append(living, l.Lease)
		}
	}
	sortLeases(living)
	return living, nil
}
