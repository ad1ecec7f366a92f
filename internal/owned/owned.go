// Package owned manages files that prove that their owner is alive: the owner keeps them
// locked (flock), and the kernel releases the lock when the owner dies, whatever its pid
// or PID namespace.
//
// Such a file is written aside, locked, and only then renamed to its name, which is used
// once. So it is never visible half written, or unlocked while its owner is alive. A file
// seen without its lock belongs to a dead owner and may be removed.
//
// The files may be in a folder that other users can write to.
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
	// asideAge is the age after which the writer of an unfinished file must be dead, not
	// slow.
	asideAge = time.Minute
	// maxRead limits how much is read of a file that any user may have written.
	maxRead = 64 << 10
)

// ErrNotRegular means that the name refers to a link, a pipe or another special file.
var ErrNotRegular = errors.New("not a regular file")

// Create creates a file with this name, locked if it is to prove that this process is
// alive. The name must never have been used.
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

// Names returns the names of a folder's files with this suffix, without those still being
// written: they are not locked yet, but their owner is not dead.
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

// Read returns the content of a file, and whether its owner is alive.
func Read(path string) (data []byte, lives bool, err error) {
	file, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	if data, err = io.ReadAll(io.LimitReader(file, maxRead)); err != nil {
		return nil, false, err
	}
	// A shared lock: concurrent readers must not mistake each other for the owner.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return data, true, nil
	}
	return data, false, err
}

// Remove removes this process's file and then releases its lock. In the other order, the
// file would look like a dead owner's. It reports whether the file existed.
func Remove(path string, file *os.File) bool {
	removed := os.Remove(path) == nil
	// Unlock explicitly: a child that is being started holds the file open too, until it
	// executes.
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
	return removed
}

// Sweep removes unfinished files from this folder.
func Sweep(dir string, now time.Time) {
	asides, _ := filepath.Glob(filepath.Join(dir, asidePrefix+"*"))
	for _, path := range asides {
		if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > asideAge {
			_ = os.Remove(path)
		}
	}
}

// Open opens a regular file. For anything else it returns ErrNotRegular, without blocking.
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
