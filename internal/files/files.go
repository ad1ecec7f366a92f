// Package files creates, writes, maps and finds files: durably where a crash must not lose
// them, and without following links where another user could plant one.
package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Unwritable reports whether an error means that a disk cannot be written now, not that a path is wrong.
func Unwritable(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO}, func(disk error) bool { return errors.Is(err, disk) })
}

// SyncDir makes a rename durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// File modes: the umask applies to files the user asked for; only the owner can read the
// job's internal files.
const (
	PublicMode  os.FileMode = 0o666
	PrivateMode os.FileMode = 0o600
)

// Create creates a file in a job folder. It does not follow links.
func Create(path string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode)
}

// WriteDurably writes a small file atomically and durably.
func WriteDurably(path string, data []byte, mode os.FileMode) error {
	aside := path + ".tmp"
	file, err := Create(aside, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = cmp.Or(err, file.Close()); err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		_ = os.Remove(aside)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteJSON writes a value as indented JSON to a small file, as WriteDurably does.
func WriteJSON(path string, value any, mode os.FileMode) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return WriteDurably(path, append(data, '\n'), mode)
}

// maxLinks is how many links in a row Linux follows.
const maxLinks = 40

// RealPath resolves the links of a path, which need not exist. A device or a pipe keeps its
// path: the link of a pipe such as /dev/fd/63 does not resolve to a path.
func RealPath(path string) string {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return path
	}
	for range maxLinks {
		if full, err := filepath.EvalSymlinks(path); err == nil {
			return full
		}
		if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(parent, filepath.Base(path))
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}

// Absolute returns the full path.
func Absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return filepath.Clean(path)
}

// Inside reports whether a path is a folder or below it, following links.
func Inside(path, dir string) bool {
	below, err := filepath.Rel(RealPath(Absolute(dir)), RealPath(Absolute(path)))
	return err == nil && filepath.IsLocal(below)
}

// Same reports whether two names lead to the same file, which need not exist yet.
func Same(a, b string) bool {
	if RealPath(Absolute(a)) == RealPath(Absolute(b)) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && infoA.Mode().IsRegular() && os.SameFile(infoA, infoB)
}

// IsFolder reports whether a path is a folder or a link to one.
func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
