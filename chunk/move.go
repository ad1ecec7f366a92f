package chunk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// NameFile gives a durable file its name, durably. What has the name already is
// replaced only if that is wanted; else it is a fault, and the file waits.
func NameFile(temporary, path string, replace bool) error {
	err := move(temporary, path, replace)
	if errors.Is(err, os.ErrExist) {
		err = replaceSame(temporary, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return storageOf(path, err)
}

// replaceSame ends what a crash came into, when the file had its name already but
// was still there under the old one; with the same bytes nothing is lost. All else
// stays.
func replaceSame(temporary, path string) error {
	old, errOld := os.Stat(path)
	file, errFile := os.Stat(temporary)
	switch {
	case errOld != nil || errFile != nil || !old.Mode().IsRegular() || !sameContent(temporary, path):
		return taken(path)
	case !os.SameFile(old, file):
		return move(temporary, path, true)
	}
	return dropOldName(temporary, path) // a rename of one to the other would leave both
}

// dropOldName leaves a file that has two names the new one, when that is durable.
func dropOldName(old, name string) error {
	if err := syncDir(filepath.Dir(name)); err != nil {
		return err
	}
	return os.Remove(old)
}

// taken is the fault of a name that somebody else took while the job ran.
func taken(path string) error {
	what := "something"
	if info, err := os.Stat(path); err == nil {
		what = fmt.Sprintf("a file of %d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339))
		if info.IsDir() {
			what = "a folder"
		}
	}
	return fault.New(fault.Conflict, "the job is complete, but %s is there meanwhile: %s that is not the job's; "+
		"move it away, or replace it with --force: the same command then only gives the output its name", path, what)
}

// move renames a file. To another file system, where the job folder or the
// errors may be, that takes a copy, and the name still appears at once.
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
		return syscall.EEXIST // found before all is copied
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
	// The two file systems do not wait for each other: what is here goes when
	// the other is certain.
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	_ = os.Remove(from)
	return nil
}

// What not every file system can do: variables, so that tests can be one of those.
var (
	exchangeNames = exchange
	renameToNew   = renameNew
	linkNames     = os.Link
)

// renameFree renames a file if nothing has the name: nothing but a link that
// leads nowhere.
func renameFree(from, to string) error {
	err := renameToNew(from, to)
	for errors.Is(err, syscall.EINTR) {
		err = renameToNew(from, to)
	}
	if cannotDo(err) {
		if err = linkNames(from, to); err == nil {
			crash.Point("linked")
			return dropOldName(from, to)
		}
		if cannotLink(err) { // then there is nothing better than to look first
			_, err = os.Lstat(to)
			if errors.Is(err, os.ErrNotExist) {
				return os.Rename(from, to)
			}
			if err == nil {
				err = syscall.EEXIST
			}
		}
	}
	if errors.Is(err, os.ErrExist) {
		if _, gone := os.Stat(to); errors.Is(gone, os.ErrNotExist) {
			return os.Rename(from, to)
		}
	}
	return err
}

// cannotDo: the file system, or the system, has no such way to rename.
func cannotDo(err error) bool {
	return errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP)
}

// linkFile gives a file a second name; where there is no such thing, a copy.
func linkFile(from, to string) error {
	err := linkNames(from, to)
	if cannotLink(err) {
		return copyFile(from, to)
	}
	return err
}

func cannotLink(err error) bool {
	for _, cannot := range []error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.ENOSYS} {
		if errors.Is(err, cannot) {
			return true
		}
	}
	return false
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

// sameContent reports whether two files hold the same bytes.
func sameContent(a, b string) bool {
	fileA, err := os.Open(a)
	if err != nil {
		return false
	}
	defer fileA.Close()
	fileB, err := os.Open(b)
	if err != nil {
		return false
	}
	defer fileB.Close()
	bufferA, bufferB := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(fileA, bufferA)
		m, errB := io.ReadFull(fileB, bufferB)
		switch {
		case !bytes.Equal(bufferA[:n], bufferB[:m]):
			return false
		case errA != nil || errB != nil:
			return ended(errA) && ended(errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
