package commit

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// target is one file of the output, or a folder of parts.
type target struct {
	path      string
	temporary string // empty if written to directly
	writer    io.Writer
	file      *os.File // nil if the writer belongs to the caller
	size      int64    // so far, of all parts
	begun     int64    // size when the newest part began
	lost      error    // a sync failed, so data may be lost
	parts     bool     // temporary is a folder, and file its newest part
	unnamed   bool     // a part's name is not durable yet
}

// openTarget opens a temporary file, or the target itself if a rename would replace it: a
// device, a pipe, standard output. It follows links, so that a link such as /dev/stdout
// stays and its target is replaced.
//
// size is the size of the valid content; the rest is truncated.
func openTarget(f outputFile, options Options, size int64) (target, error) {
	if f.final == "-" {
		stdout := options.Stdout
		if stdout == nil {
			stdout = os.Stdout
		}
		return target{path: f.final, writer: stdout, size: size}, nil
	}
	path := files.RealPath(f.final)
	if isDirect(path) {
		file, err := openDirect(path, options.Stop)
		if err != nil {
			return target{}, err
		}
		return target{path: path, writer: file, file: file, size: size}, nil
	}
	// Without O_APPEND, which would prevent the kernel from copying.
	file, err := os.OpenFile(f.temporary, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, f.mode)
	if err != nil {
		return target{}, createFault(err)
	}
	t := target{path: path, temporary: f.temporary, writer: file, file: file, size: size}
	if err := t.cut(size); err != nil {
		file.Close()
		return target{}, err
	}
	return t, nil
}

// openDirect opens a device or a pipe. Opening a pipe waits for its reader; on stop the
// waiting goroutine is abandoned.
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
			return nil, fault.WriteFailed.New("open output: %w", r.err)
		}
		return r.file, nil
	case <-stop:
		return nil, fault.ReaderEnded.New("stopped before a reader opened %s", path)
	}
}

// createFault distinguishes a damaged job folder, in which something else has the name,
// from a disk that cannot be written to.
func createFault(err error) error {
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		return fault.JobDamaged.New("the job folder is damaged: %w", err)
	}
	return fault.WriteFailed.New("create output: %w", err)
}

// isDirect reports whether a path is written to directly, without a temporary name.
func isDirect(path string) bool {
	if path == "-" {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular()
}

// cut truncates the file to size bytes. A shorter file is not the one that was written.
func (t *target) cut(size int64) error {
	info, err := t.file.Stat()
	if err != nil {
		return fault.WriteFailed.New("open output: %w", err)
	}
	if info.Size() < size {
		return fault.JobDamaged.New("%s has %d bytes, but the journal records %d",
			t.file.Name(), info.Size(), size)
	}
	if err := t.file.Truncate(size); err != nil {
		return fault.WriteFailed.New("truncate output: %w", err)
	}
	if _, err := t.file.Seek(size, io.SeekStart); err != nil {
		return fault.WriteFailed.New("truncate output: %w", err)
	}
	return nil
}

// appendFile appends a part's file of the given size.
func (t *target) appendFile(path string, size int64, copyPart func(part *os.File) (int64, error)) error {
	if t.writer == nil || size == 0 {
		return nil
	}
	part, err := os.Open(path)
	if err != nil {
		return fault.PartDamaged.New("read part: %w", err)
	}
	defer part.Close()
	if info, err := part.Stat(); err != nil || info.Size() != size {
		return fault.PartDamaged.New("read part: %s does not have the %d bytes that were written", path, size)
	}
	n, err := copyPart(part)
	t.size += n
	if err != nil {
		return fault.WriteFailed.New("write output %s: %w", t.path, err)
	}
	if n != size {
		return fault.PartDamaged.New("read part: %s had %d bytes instead of %d", path, n, size)
	}
	return nil
}

// Write appends an encoded unit, or a piece of one.
func (t *target) Write(data []byte) (int, error) {
	n, err := t.writer.Write(data)
	t.size += int64(n)
	return n, err
}

// copyPart copies a part as it is: between files, the kernel does.
func (t *target) copyPart(part *os.File) (int64, error) { return io.Copy(t.writer, part) }

// sync makes a file durable. As in the journal, it never tries again after a failure.
func (t *target) sync() error {
	if t.lost == nil && t.file != nil && t.temporary != "" {
		err := t.present()
		if err == nil {
			err = t.file.Sync()
		}
		if err == nil && t.unnamed {
			t.unnamed = false
			err = files.SyncDir(t.temporary)
		}
		t.lost = storageOf(t.path, err)
	}
	return t.lost
}

// present returns a fault if the file was removed or replaced while it is being written: it
// could not be renamed.
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
	return fault.PartDamaged.New("the unfinished output %s was removed while the job ran", path)
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
	return fault.WriteFailed.New("finish output %s: %w", path, err)
}
