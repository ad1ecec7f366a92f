// Package source is the input of a job: it finds and inspects the files and streams, compares
// them with what an earlier run has read, counts them, reads them as sections and watches them
// for changes.
//
//	names ──Find──► Inputs ──Count──► input.Count, of one plain file
//	                  │ ──Open───► Source: chunks, and Check before results are committed
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// Options are what a job says about its input.
type Options struct {
	// Names are what the user has named: files, globs, folders, lists, - for Stdin.
	Names []string
	// Stdin is standard input. Lines, if set, is what is read of it instead, as it is.
	Stdin io.Reader
	Lines *format.Lines
	// Streams are those that were found before, and may have been read from; nil for none.
	Streams *Streams
	// Beside are values that the records of the only file have beside their lines; nil for none.
	Beside *Beside
	// Format and Columns are those that the user chose; "" and nil by default.
	Format  string
	Columns []string
	// SkipBad: the job continues without damaged files.
	SkipBad bool
	// NoMembers: folders give no members to records.
	NoMembers bool
	// OriginOf recognizes outputs of jobs.
	OriginOf expand.OriginOf
}

// Inputs are the files and streams of a job, in order.
type Inputs struct {
	Files []File
	// LeftOut are outputs of other jobs in the folders that were named.
	LeftOut []string
	missing string // the name of the only input, which does not exist
	options Options
}

// File is one of them.
type File struct {
	Name string      // as the user knows it; - for standard input
	Path string      // absolute; empty for a stream
	info os.FileInfo // nil for a stream
	kind decode.Kind // of a file
	sum  chunk.CRC   // of samples of its content
	// members are those that its folders give to its records.
	members []format.Member
	beside  *Beside
	// stream is read if it is not a file. sampled, if set, is what it is decoded to.
	stream  *decode.Stream
	sampled *format.Lines
}

// Streams are the streams of a job, which stay the same if it begins once more. The zero value is
// empty. It is safe for concurrent use.
type Streams struct{ byName sync.Map }

// get returns the stream of a name.
func (s *Streams) get(o Options, name string, from io.Reader) *decode.Stream {
	title := "input " + name
	if name == expand.Stdin {
		title = "standard input"
	}
	stream, _ := s.byName.LoadOrStore(name, decode.NewStream(from, title, o.Format, o.Columns))
	return stream.(*decode.Stream)
}

// openAtOnce is how many files are inspected at a time, for file systems that are far away.
const openAtOnce = 16

// Find returns the files that the names stand for. An input that only this process can open, or
// that can be read only once, becomes a stream: <(zcat in.jsonl.gz), a named pipe, /dev/stdin.
// Workers open a file by name, and for them /dev/stdin is a different input. A missing file is
// reported by Check: a job that is finished does not need it.
func Find(o Options) (*Inputs, error) {
	if len(o.Names) == 1 && isMissing(o.Names[0]) {
		return &Inputs{missing: o.Names[0]}, nil
	}
	found, left, err := expand.Files(o.Names, o.OriginOf)
	if err != nil {
		return nil, err
	}
	if o.Streams == nil {
		o.Streams = new(Streams)
	}
	all := &Inputs{Files: make([]File, len(found)), LeftOut: left, options: o}
	var group errgroup.Group
	group.SetLimit(openAtOnce)
	for i, file := range found {
		group.Go(func() (err error) {
			all.Files[i], err = o.inspect(file)
			return err
		})
	}
	return all, group.Wait()
}

// isMissing reports whether a name can only mean a file, which does not exist.
func isMissing(name string) bool {
	_, err := os.Stat(name)
	return name != expand.Stdin && errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(name, "*?[") && !strings.HasPrefix(name, "@")
}

// inspect looks at one file or stream.
func (o Options) inspect(found expand.File) (File, error) {
	if found.Info == nil {
		return File{Name: expand.Stdin, stream: o.Streams.get(o, expand.Stdin, o.Stdin), sampled: o.Lines}, nil
	}
	path, err := filepath.Abs(found.Name)
	if err != nil {
		return File{}, fault.NoSuchInput.New("open input: %w", err)
	}
	file := File{Name: found.Name, Path: path, info: found.Info, beside: o.Beside}
	if !found.Regular() || isOwnName(path) {
		common, ok := "", false
		if found.Regular() {
			common, ok = commonName(found.Name, found.Info)
		}
		if !ok {
			return File{Name: found.Name, stream: o.Streams.get(o, found.Name, streamOf(found))}, nil
		}
		file.Name, file.Path = common, common
	}
	opened, err := os.Open(file.Name)
	if err != nil {
		return file, fault.NoSuchInput.New("open input: %w", err)
	}
	defer opened.Close()
	if !o.NoMembers {
		file.members = found.Members
	}
	file.kind, err = decode.Detect(decode.File(opened, file.Name, file.info.Size()), o.Format, o.Columns, file.members...)
	if e := fault.As(err); e != nil && !(o.SkipBad && e.Code == fault.BadInput) { // that is reported when it is its turn
		return file, err
	}
	if file.sum, err = sampleSum(opened, file.info.Size()); err != nil {
		return file, fault.InputUnreadable.Of(fault.Usage, "read input %s: %w", file.Name, err)
	}
	return file, nil
}

// isOwnName reports whether a name may mean something else to another process.
func isOwnName(path string) bool {
	return strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/dev/shm/") || strings.HasPrefix(path, "/proc/")
}

// commonName returns the name by which every process finds the file; none if it was
// removed.
func commonName(path string, info os.FileInfo) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	found, err := os.Stat(real)
	return real, err == nil && os.SameFile(found, info) && !isOwnName(real)
}

// streamOf returns the reader of a pipe or device.
func streamOf(found expand.File) io.Reader {
	if stdin, err := os.Stdin.Stat(); err == nil && os.SameFile(stdin, found.Info) {
		return os.Stdin // a socket cannot be reopened by name
	}
	return &lateFile{path: found.Name}
}

// lateFile is opened by the first Read: opening a pipe waits for its writer.
type lateFile struct {
	path string
	file *os.File
}

func (l *lateFile) Read(p []byte) (int, error) {
	if l.file == nil {
		file, err := os.Open(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	n, err := l.file.Read(p)
	if err != nil {
		l.file.Close()
	}
	return n, err
}

// Check reports an input that does not exist.
func (i *Inputs) Check() error {
	if i.missing == "" {
		return nil
	}
	return expand.NotFound(i.missing)
}

// Label is what the job calls its input, which the user named so: the only file, - for a stream.
func (i *Inputs) Label(names []string) string {
	switch {
	case len(i.Files) != 1:
		return strings.Join(names, " ")
	case i.Files[0].stream != nil:
		return expand.Stdin
	}
	return i.Files[0].Name
}

// Await waits for the first bytes of streams: they show columns of bytes, and the types of others,
// which decide how a job begins. It waits for patience at most, unless the user has chosen a format
// that has them.
func (i *Inputs) Await(ctx context.Context, patience time.Duration) {
	until := time.Now().Add(patience)
	for k := range i.Files {
		if file := &i.Files[k]; file.stream != nil && file.sampled == nil {
			file.kind, _ = file.stream.Await(ctx, time.Until(until))
		}
	}
}

// Streams reports whether any input can be read only once.
func (i *Inputs) Streams() bool { return slices.ContainsFunc(i.Files, File.Stream) }

// Paths returns the files that exist on disk, or should.
func (i *Inputs) Paths() (paths []string) {
	if i.missing != "" {
		return []string{i.missing}
	}
	for _, file := range i.Files {
		if file.Path != "" {
			paths = append(paths, file.Path)
		}
	}
	return paths
}

// States returns the states of all files; none for a single stream, about which nothing is known.
func (i *Inputs) States() (states []State) {
	if len(i.Files) == 1 && i.Files[0].stream != nil {
		return nil
	}
	for _, file := range i.Files {
		states = append(states, file.state())
	}
	return states
}

// Members describes the members that folders give to records.
func (i *Inputs) Members() (names []string) {
	for _, file := range i.Files {
		for _, m := range file.members {
			if text := fmt.Sprintf("%s (%s)", m.Name, m.Type); !slices.Contains(names, text) {
				names = append(names, text)
			}
		}
	}
	return names
}

// Bytes returns the columns whose values are bytes, in the order in which files have them.
func (i *Inputs) Bytes() (names []string) {
	for _, file := range i.Files {
		for _, name := range append(file.kind.Bytes(), file.beside.names()...) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// plain returns the only file of an input, if its lines are records as they are; else nil.
func (i *Inputs) plain() *File {
	if len(i.Files) != 1 || !i.Files[0].isPlain() {
		return nil
	}
	return &i.Files[0]
}

// Plain returns the name of the only file of an input, if its lines are records as they are;
// else "".
func (i *Inputs) Plain() string {
	if file := i.plain(); file != nil {
		return file.Name
	}
	return ""
}

// Stream reports whether the input can be read only once.
func (f File) Stream() bool { return f.stream != nil }

// isPlain reports whether the lines of the file are records as they are.
func (f File) isPlain() bool { return f.stream == nil && f.beside == nil && f.kind.Plain() }

// Columns returns the columns that the file declares, if its format does that.
func (f File) Columns(options format.Options) (list []format.Column, ok bool, err error) {
	if f.stream != nil {
		list, ok = f.kind.Declared()
		return list, ok, nil
	}
	err = f.open(func(file format.File) error {
		list, ok, err = decode.Columns(file, f.kind, options)
		return err
	})
	return list, ok, err
}

// open opens the file for the time of a function.
func (f File) open(use func(format.File) error) error {
	opened, err := os.Open(f.Path)
	if err != nil {
		return fault.NoSuchInput.Of(fault.Storage, "open input: %w", err)
	}
	defer opened.Close()
	return use(decode.File(opened, f.Name, f.info.Size()))
}

// Lines decodes a file or stream.
func (f File) Lines(ctx context.Context, options format.Options) (format.Lines, error) {
	return f.opener(options, new(atomic.Int64))(ctx)
}

// opener returns what decodes a file or stream. The bytes that are read of a file are added to
// read.
func (f File) opener(options format.Options, read *atomic.Int64) func(context.Context) (format.Lines, error) {
	return func(ctx context.Context) (format.Lines, error) {
		switch {
		case f.sampled != nil:
			return *f.sampled, nil
		case f.stream != nil:
			return f.stream.Lines(ctx, options), nil
		}
		opened, err := os.Open(f.Path)
		if err != nil {
			return format.Lines{}, fault.NoSuchInput.Of(fault.Storage, "open input: %w", err)
		}
		lines, err := decode.Open(ctx, countedFile{decode.File(opened, f.Name, f.info.Size()), read}, f.kind, options)
		if err != nil {
			opened.Close()
			return lines, err
		}
		return f.beside.add(lines.AlsoClosing(opened)), nil
	}
}

// countedFile counts the bytes that are read of a file.
type countedFile struct {
	format.File
	read *atomic.Int64
}

func (f countedFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	f.read.Add(int64(n))
	return n, err
}
