package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// NameFile durably gives a durable file its final name. It replaces an existing file only
// if replace is set. Otherwise an existing file is a fault, and the new one keeps its
// temporary name.
func NameFile(temporary, path string, replace bool) error {
	err := move(temporary, path, replace)
	if errors.Is(err, os.ErrExist) {
		err = replaceSame(temporary, path)
	}
	if err == nil {
		err = files.SyncDir(filepath.Dir(path))
	}
	return storageOf(path, err)
}

// replaceSame finishes a rename that a crash interrupted after the file got its final name
// but before its temporary name was removed. It replaces only a file with the same content.
func replaceSame(temporary, path string) error {
	old, errOld := os.Stat(path)
	file, errFile := os.Stat(temporary)
	switch {
	case errOld != nil || errFile != nil || !old.Mode().IsRegular() || !sameContent(temporary, path):
		return nameTaken(path)
	case !os.SameFile(old, file):
		return move(temporary, path, true)
	}
	return dropOldName(temporary, path) // renaming one link to the other would leave both
}

// dropOldName makes the new name of a file durable, then removes the old one.
func dropOldName(old, name string) error {
	if err := files.SyncDir(filepath.Dir(name)); err != nil {
		return err
	}
	return os.Remove(old)
}

// nameTaken is the fault of a name that another program took while the job ran.
func nameTaken(path string) error {
	what := "something"
	if info, err := os.Stat(path); err == nil {
		what = fmt.Sprintf("a file of %d bytes from %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339))
		if info.IsDir() {
			what = "a folder"
		}
	}
	return fault.OutputTaken.New("the job is complete, but %s now exists: %s that this job did not write", path, what)
}

// move renames a file. If the target is on another file system, it copies the file first,
// so that the name still appears atomically.
func move(from, to string, replace bool) error {
	rename := renameFree
	if replace {
		rename = os.Rename
	}
	err := rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if _, err := os.Stat(to); err == nil && !replace {
		return syscall.EEXIST // fail before copying
	}
	aside := to + asideSuffix
	if err = copyFile(from, aside); err == nil {
		crash.Point("copied")
		err = rename(aside, to)
	}
	if err != nil {
		_ = os.Remove(aside)
		return err
	}
	crash.Point("moved")
	// The two file systems sync independently: remove the source only when the copy is
	// durable.
	if err := files.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	_ = os.Remove(from)
	return nil
}

// Operations that some file systems lack. They are variables so that tests can simulate such
// a file system.
var (
	exchangeNames = exchange
	linkNames     = os.Link
)

// renameFree renames a file if the name is free. A dangling link counts as free. A link, unlike renaming,
// fails on every system if the name is taken.
func renameFree(from, to string) error {
	err := linkNames(from, to)
	if err == nil {
		crash.Point("linked")
		return dropOldName(from, to)
	}
	if cannotLink(err) { // checking first is the best that remains
		_, err = os.Lstat(to)
		if err == nil {
			err = syscall.EEXIST
		}
	}
	if _, none := os.Stat(to); errors.Is(none, os.ErrNotExist) {
		return os.Rename(from, to)
	}
	return err
}

// isUnsupported reports whether the file system or the operating system lacks an operation.
func isUnsupported(err error) bool {
	return errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP)
}

// LinkFile gives a file a second name, or copies it if the file system cannot.
func LinkFile(from, to string) error {
	err := linkNames(from, to)
	if cannotLink(err) {
		return copyFile(from, to)
	}
	return err
}

func cannotLink(err error) bool {
	return slices.ContainsFunc([]error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.ENOSYS}, func(cannot error) bool {
		return errors.Is(err, cannot)
	})
}

// copyFile makes a durable copy.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return cmp.Or(err, out.Close())
}

// sameContent reports whether two files have the same size and checksum.
func sameContent(a, b string) bool {
	sum, err := chunk.SumFile(context.Background(), a)
	other, otherErr := chunk.SumFile(context.Background(), b)
	return err == nil && otherErr == nil && sum == other
}
