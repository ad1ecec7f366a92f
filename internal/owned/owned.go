// Package owned is files that say that somebody lives: their owner keeps them
// locked (flock), and the kernel lets go of the lock when it is dead, whatever its
// process number, or the PID namespace it was in.
//
// Such a file is written aside, locked, and only then given its name, which is used
// once. Nobody ever sees it half written, or unlocked while its owner lives; and a
// file that was once seen without its lock is a dead owner's for ever, and may be
// removed.
//
// The files may lie in a folder where others may put anything.
package owned

import (
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
	asidePrefix = ".new-"
	// asideAge is how old a file must be that was written aside and never got its
	// name: its writer is dead, not slow.
	asideAge = time.Minute
	// maxRead bounds what is read of a file that anybody may have written.
	maxRead = 64 << 10
)

// ErrNotRegular: under that name lies a link, a pipe, or something else.
var ErrNotRegular = errors.New("not a regular file")

// Create makes a file of that name, locked if it is to say that this process lives.
// The name must never have been used.
func Create(path string, data []byte, mode os.FileMode, locked bool) (*os.File, error) {
	aside := filepath.Join(filepath.Dir(path), asidePrefix+filepath.Base(path))
	file, err := Open(aside, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	err = fill(file, data, mode, locked)
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		_ = os.Remove(aside)
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func fill(file *os.File, data []byte, mode os.FileMode, locked bool) error {
	if err := file.Chmod(mode); err != nil { // whatever the umask is
		return err
	}
	if _, err := file.Write(data); err != nil || !locked {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return nil
}

// Names returns the names of a folder's files that end so, without those that are still
// being written: nobody has locked them yet, and they are not dead.
func Names(dir, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, asidePrefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// Read returns what a file says, and whether its owner lives.
func Read(path string) (data []byte, lives bool, err error) {
	file, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	if data, err = io.ReadAll(io.LimitReader(file, maxRead)); err != nil {
		return nil, false, err
	}
	// A shared lock: two who ask at once must not take each other for the owner.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return data, true, nil
	}
	return data, false, err
}

// Remove removes an own file and lets go of its lock, in this order: without its
// lock the file would be taken for that of a dead owner. It reports whether the
// file was there.
func Remove(path string, file *os.File) bool {
	removed := os.Remove(path) == nil
	// Not by closing it alone: a child that is just being started has it open too,
	// until it is.
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
	return removed
}

// Sweep removes files of this folder that were begun and never finished.
func Sweep(dir string, now time.Time) {
	asides, _ := filepath.Glob(filepath.Join(dir, asidePrefix+"*"))
	for _, path := range asides {
		if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > asideAge {
			_ = os.Remove(path)
		}
	}
}

// Open opens a regular file; ErrNotRegular for anything else, without blocking.
func Open(path string, flags int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, a socket
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	return file, nil
}
