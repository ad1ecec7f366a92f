package chunk

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// target is one file of the output, or a folder of parts.
type target struct {
	path      string
	temporary string // empty if written to directly
	writer    io.Writer
	file      *os.File // nil if the writer is somebody else's
	size      int64    // so far, of all parts
	begun     int64    // what it was when the newest part began
	lost      error    // a sync failed: what it should have written may be gone
	parts     bool     // temporary is a folder, and file the newest part in it
	unnamed   bool     // a part's name is not durable yet
}

// openTarget opens a file aside, or the thing itself where a rename would
// replace it: a device, a pipe, standard output. Of a link, what it leads to
// is replaced: /dev/stdout must stay what it is.
//
// size is what of the file is believed: the rest is cut off.
func openTarget(path, temporary string, options OutputOptions, size int64, mode os.FileMode) (target, error) {
	if path == "-" {
		stdout := options.Stdout
		if stdout == nil {
			stdout = os.Stdout
		}
		return target{path: path, writer: stdout, size: size}, nil
	}
	path = RealPath(path)
	if isDirect(path) {
		file, err := openDirect(path, options.Stop)
		if err != nil {
			return target{}, err
		}
		return target{path: path, writer: file, file: file, size: size}, nil
	}
	// Not for appending: then the kernel would not do the copying.
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return target{}, notCreated(err)
	}
	t := target{path: path, temporary: temporary, writer: file, file: file, size: size}
	if err := t.cut(size); err != nil {
		file.Close()
		return target{}, err
	}
	return t, nil
}

// openDirect opens a device or a pipe. To open a pipe is to wait for its reader; on stop
// whoever waits is left behind.
func openDirect(path string, stop <-chan struct{}) (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result)
	go func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		select {
		case opened <- result{file, err}:
		case <-stop:
			if file != nil {
				file.Close()
			}
		}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, fault.New(fault.Storage, "open output: %w", r.err)
		}
		return r.file, nil
	case <-stop:
		return nil, fault.New(fault.Canceled, "stopped before anybody read %s", path)
	}
}

// notCreated tells a job folder in which something else has the name from a disk
// that cannot be written to.
func notCreated(err error) error {
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		return fault.New(fault.Conflict, "the job folder is damaged: %w; --fresh starts the job over", err)
	}
	return fault.New(fault.Storage, "create output: %w", err)
}

// maxLinks is how many links in a row Linux follows.
const maxLinks = 40

// RealPath is where a name leads, also one that leads to nothing yet. A device or a pipe
// keeps its name: that of a pipe behind /dev/fd/63 leads nowhere.
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

// isDirect reports what is written to as it comes, and gets no name at the end.
func isDirect(path string) bool {
	if path == "-" {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// cut makes the file size bytes long. One that is shorter is not the one that
// was written.
func (t *target) cut(size int64) error {
	info, err := t.file.Stat()
	if err != nil {
		return fault.New(fault.Storage, "open output: %w", err)
	}
	if info.Size() < size {
		return fault.New(fault.Conflict, "%s has %d bytes, and the journal knows of %d; --fresh starts the job over",
			t.file.Name(), info.Size(), size)
	}
	if err := t.file.Truncate(size); err != nil {
		return fault.New(fault.Storage, "cut output: %w", err)
	}
	if _, err := t.file.Seek(size, io.SeekStart); err != nil {
		return fault.New(fault.Storage, "cut output: %w", err)
	}
	return nil
}

// appendFile copies a part's file, of so many bytes, to the end.
func (t *target) appendFile(path string, size int64, copyPart func(part *os.File, size int64) (int64, error)) error {
	if t.writer == nil || size == 0 {
		return nil
	}
	part, err := os.Open(path)
	if err != nil {
		return fault.New(fault.Storage, "read part: %w", err)
	}
	defer part.Close()
	if info, err := part.Stat(); err != nil || info.Size() != size {
		return fault.New(fault.Storage, "read part: %s is not the %d bytes that were written", path, size)
	}
	n, err := copyPart(part, size)
	t.size += n
	if err != nil {
		return fault.New(fault.Storage, "write output %s: %w", t.path, err)
	}
	if n != size {
		return fault.New(fault.Storage, "read part: %s had %d bytes instead of %d", path, n, size)
	}
	return nil
}

// copyPart copies a part as it is.
func (t *target) copyPart(part *os.File, size int64) (int64, error) {
	if t.temporary == "" { // a pipe, or what somebody gave us
		return io.Copy(t.writer, part)
	}
	return copyFrom(t.file, part, size)
}

// sync makes what was written durable, where it is a file. Once it has failed it
// is not tried again, as in the journal.
func (t *target) sync() error {
	if t.lost == nil && t.file != nil && t.temporary != "" {
		err := t.present()
		if err == nil {
			err = t.file.Sync()
		}
		if err == nil && t.unnamed {
			t.unnamed = false
			err = syncDir(t.temporary)
		}
		t.lost = storageOf(t.path, err)
	}
	return t.lost
}

// present is the fault of a file that was removed, or replaced, while it is written:
// nobody could give it its name.
func (t *target) present() error {
	opened, err := t.file.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(t.file.Name())
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(opened, named) {
		return removedMeanwhile(t.file.Name())
	}
	return err
}

func removedMeanwhile(path string) error {
	return fault.New(fault.Storage, "the unfinished output %s was removed while the job ran", path)
}

// finish gives the file its name.
func (t *target) finish(replace bool) error {
	if t.file == nil {
		return nil
	}
	err := t.sync()
	file := t.file
	t.file = nil
	if err = cmp.Or(err, storageOf(t.path, file.Close())); err != nil || t.temporary == "" {
		return err
	}
	return NameFile(t.temporary, t.path, replace)
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

func storageOf(path string, err error) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	return fault.New(fault.Storage, "finish output %s: %w", path, err)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// The modes of files: what the user asked for is as the umask says, what the job keeps
// for itself is its owner's alone.
const (
	PublicMode  os.FileMode = 0o666
	PrivateMode os.FileMode = 0o600
)

// createNew makes a file in a job folder, and never writes to what a link leads to.
func createNew(path string, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode)
}

// WriteDurably writes a small file so that it is there whole, or not at all.
func WriteDurably(path string, data []byte, mode os.FileMode) error {
	aside := path + ".tmp"
	file, err := createNew(aside, mode)
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
	return syncDir(filepath.Dir(path))
}
