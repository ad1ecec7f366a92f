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

// Output puts segments back together in input order. Those that come early wait
// as parts on disk, so its memory does not grow with the input.
//
// It is used by one goroutine at a time.
type Output struct {
	next     int64 // the record that the next segment appended begins with
	waiting  map[int64]Segment
	counts   Counts
	results  target
	errors   target
	failures target
}

// OutputOptions say where the output goes.
type OutputOptions struct {
	// Path is the output: a file's name, or - for Stdout.
	Path string
	// Errors is where failed records go; empty means their place in Path.
	Errors string
	// WorkDir is the job folder. What is not finished is written there, and gets
	// its name by a rename when it is.
	WorkDir string
	// First is the number of the first record.
	First int64
	// Stdout is where - leads; nil means os.Stdout.
	Stdout io.Writer
}

// FailuresFile is the name, in the job folder, of what is known of each failed
// record.
const FailuresFile = "failures.jsonl"

// CreateOutput begins an output.
func CreateOutput(options OutputOptions) (*Output, error) {
	o := &Output{next: options.First, waiting: make(map[int64]Segment)}
	targets := []struct {
		target    *target
		path      string
		temporary string
	}{
		{&o.results, options.Path, "output.partial"},
		{&o.errors, options.Errors, "errors.partial"},
		{&o.failures, filepath.Join(options.WorkDir, FailuresFile), "failures.partial"},
	}
	for _, t := range targets {
		if t.path == "" {
			continue
		}
		var err error
		if *t.target, err = openTarget(t.path, filepath.Join(options.WorkDir, t.temporary), options.Stdout); err != nil {
			o.Abandon()
			return nil, err
		}
	}
	return o, nil
}

// Commit takes a finished segment. It is appended, with those that waited for
// it, as soon as everything before it is there.
func (o *Output) Commit(s Segment) error {
	if s.Counts.Records == 0 { // it would take the place of the one that begins there
		RemovePart(s.Part)
		return nil
	}
	o.waiting[s.First] = s
	for {
		s, ok := o.waiting[o.next]
		if !ok {
			return nil
		}
		if err := o.append(s); err != nil {
			return err
		}
		delete(o.waiting, o.next)
		o.next += s.Counts.Records
		o.counts.Add(s.Counts)
	}
}

func (o *Output) append(s Segment) error {
	succeeded, failed := s.Counts.Succeeded > 0, s.Counts.Failed > 0
	apart := o.errors.writer != nil
	for _, one := range []struct {
		target *target
		suffix string
		made   bool // there must be such a file
	}{
		{&o.results, resultsSuffix, succeeded || failed && !apart},
		{&o.errors, errorsSuffix, failed},
		{&o.failures, failuresSuffix, failed},
	} {
		if err := one.target.appendFile(s.Part+one.suffix, one.made); err != nil {
			return err
		}
	}
	RemovePart(s.Part)
	return nil
}

// Appended is what stands in the output so far, and the record it ends before.
func (o *Output) Appended() (Counts, int64) { return o.counts, o.next }

// Finish makes the output durable and gives it its name, after all that belongs
// to it has one. If that fails the rest is abandoned.
func (o *Output) Finish() error {
	defer o.Abandon()
	if n := len(o.waiting); n > 0 {
		return fault.New(fault.Unknown, "bug: %d segments wait for record %d", n, o.next)
	}
	if err := o.failures.finish(false); err != nil {
		return err
	}
	if err := o.errors.finish(true); err != nil {
		return err
	}
	return o.results.finish(true)
}

// Abandon closes the output without giving it its name.
func (o *Output) Abandon() {
	o.results.close()
	o.errors.close()
	o.failures.close()
}

// target is one file of the output.
type target struct {
	path      string
	temporary string // empty if written to directly
	writer    io.Writer
	file      *os.File // nil if the writer is somebody else's
}

// openTarget opens a file aside, or the thing itself where a rename would
// replace it: a device, a pipe, standard output. Of a link, what it leads to
// is replaced: /dev/stdout must stay what it is.
func openTarget(path, temporary string, stdout io.Writer) (target, error) {
	if path == "-" {
		if stdout == nil {
			stdout = os.Stdout
		}
		return target{path: path, writer: stdout}, nil
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	open, flags := temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		open, flags, temporary = path, os.O_WRONLY, ""
	}
	file, err := os.OpenFile(open, flags, 0o666)
	if err != nil {
		return target{}, fault.New(fault.Storage, "create output: %w", err)
	}
	return target{path: path, temporary: temporary, writer: file, file: file}, nil
}

// appendFile copies a part's file to the end; made says that there must be one.
// Between two files the kernel does the copying.
func (t *target) appendFile(path string, made bool) error {
	if t.writer == nil {
		return nil
	}
	part, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && !made {
		return nil
	}
	if err != nil {
		return fault.New(fault.Storage, "read part: %w", err)
	}
	defer part.Close()
	if _, err := io.Copy(t.writer, part); err != nil {
		return fault.New(fault.Storage, "write output %s: %w", t.path, err)
	}
	return nil
}

// finish renames the file, once it is durable where that matters.
func (t *target) finish(durable bool) error {
	if t.file == nil {
		return nil
	}
	file := t.file
	t.file = nil
	if t.temporary == "" {
		return storageOf(t.path, file.Close())
	}
	var err error
	if durable {
		err = file.Sync()
	}
	if err = cmp.Or(err, file.Close()); err == nil {
		err = move(t.temporary, t.path)
	}
	if err == nil && durable {
		err = syncDir(filepath.Dir(t.path))
	}
	return storageOf(t.path, err)
}

func (t *target) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

func storageOf(path string, err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Storage, "finish output %s: %w", path, err)
}

// move renames a file. To another file system, where the job folder or the
// errors may be, that takes a copy, and the name still appears at once.
func move(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	aside := to + ".gpurun-partial"
	if err = copyFile(from, aside); err == nil {
		err = os.Rename(aside, to)
	}
	if err != nil {
		_ = os.Remove(aside)
		return err
	}
	_ = os.Remove(from)
	return nil
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

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
