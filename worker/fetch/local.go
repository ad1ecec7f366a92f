package fetch

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// root is the folder whose files may be read. It is opened when the first path is read: a
// job whose records only have URLs does not need it.
type root struct {
	path string

	once     sync.Once
	folder   *os.Root
	file     *os.File // the folder itself
	err      error
	prefixes []string // absolute names of the folder, without and with links resolved
}

func (r *root) open() {
	if r.path == "" {
		r.err = errors.New("there is none (fetch-root)")
		return
	}
	absolute, err := filepath.Abs(r.path)
	if err == nil {
		r.folder, err = os.OpenRoot(absolute)
	}
	if err == nil {
		r.file, err = r.folder.Open(".")
	}
	if r.err = err; err != nil {
		return
	}
	r.prefixes = []string{absolute}
	if real, err := filepath.EvalSymlinks(absolute); err == nil && real != absolute {
		r.prefixes = append(r.prefixes, real)
	}
}

func (r *root) close() {
	r.once.Do(func() { r.err = os.ErrClosed })
	if r.folder != nil {
		r.folder.Close()
	}
	if r.file != nil {
		r.file.Close()
	}
}

// read reads a file. A path may be absolute, but must not lead outside the root folder, not
// even by a symbolic link.
func (r *root) read(c *contents, path string) *fault.Error {
	r.once.Do(r.open)
	if r.err != nil {
		return misplaced("open the root folder for %q: %w", path, inner(r.err))
	}
	name := path
	if filepath.IsAbs(path) {
		name = r.below(path)
	}
	if name == "" || !filepath.IsLocal(name) {
		return misplaced("%q is outside the root folder", path)
	}
	file, ok := openBelow(r.file, name)
	if !ok {
		var failure *fault.Error
		if file, failure = r.openFile(name, path); failure != nil {
			return failure
		}
	}
	defer file.Close()
	return r.readFile(c, file, path)
}

// openedFile is a regular file and its size when it was opened.
type openedFile struct {
	io.ReadCloser
	size int64
}

// openFile opens a regular file. path is what messages call it.
func (r *root) openFile(name, path string) (openedFile, *fault.Error) {
	// Without O_NONBLOCK, opening a named pipe would wait for its writer.
	file, err := r.folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return openedFile{}, misplaced("open %q: %w", path, inner(err))
	}
	info, err := file.Stat()
	var failure *fault.Error
	switch {
	case err != nil:
		failure = misplaced("open %q: %w", path, inner(err))
	case info.IsDir():
		failure = failed("%q is a folder", path)
	case !info.Mode().IsRegular():
		failure = failed("%q is not a regular file", path)
	default:
		return openedFile{file, info.Size()}, nil
	}
	file.Close()
	return openedFile{}, failure
}

func (r *root) readFile(c *contents, file openedFile, path string) *fault.Error {
	size := file.size
	if size == 0 {
		size = -1 // some file systems do not know the sizes of files that have contents
	}
	err := c.read(file, size)
	if failure := fault.As(err); failure != nil || err == nil {
		return failure
	}
	return failed("read %q: %w", path, inner(err))
}

// misplaced is the failure of a path that may be relative to another folder than the root.
func misplaced(format string, args ...any) *fault.Error {
	return failed(format, args...).Set("fetch-root")
}

// below returns the name of an absolute path in the root folder, "" if it is not in it.
func (r *root) below(path string) string {
	path = filepath.Clean(path)
	for _, prefix := range r.prefixes {
		if path == prefix {
			return "."
		}
		if name, in := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/")+"/"); in {
			return name
		}
	}
	return ""
}

// inner returns an error without the path that it names: the message has it.
func inner(err error) error {
	var e *fs.PathError
	var call *os.SyscallError
	switch {
	case errors.As(err, &e):
		return e.Err
	case errors.As(err, &call):
		return call.Err
	}
	return err
}
