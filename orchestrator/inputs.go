package orchestrator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// inputs are the files and streams of a job, unless it reads one file of plain lines, which
// workers read as it is.
type inputs struct{ files []inputFile }

// inputFile is one of them.
type inputFile struct {
	name string      // as the user knows it; - for standard input
	path string      // absolute; empty for a stream
	info os.FileInfo // nil for a stream
	kind decode.Kind // of a file
	sum  chunk.CRC   // of samples of its content
	// members are those that its folders give to its records.
	members []format.Member
	// stream is read if it is not a file. sampled, if set, is what it is decoded to.
	stream  io.Reader
	sampled *format.Lines
}

// withInput finds the files that the input's names stand for. It converts an input that only
// this process can open, or that can be read only once, into something the job can use:
// <(zcat in.jsonl.gz), a named pipe, /dev/stdin. Workers open a file by name, and for them
// /dev/stdin is a different input.
func (c Config) withInput() (Config, error) {
	names := c.Input.names()
	if len(names) == 1 && missing(names[0]) {
		return c, nil // checkInput reports it, unless the job is finished and needs no input
	}
	found, left, err := expand.Files(names, newJobFiles(c).originOf)
	if err != nil {
		return c, err
	}
	set := &inputs{files: make([]inputFile, len(found))}
	var group errgroup.Group
	group.SetLimit(openAtOnce)
	for i, file := range found {
		group.Go(func() (err error) {
			set.files[i], err = c.openedInput(file)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	c.leftOut = left
	switch first := set.files[0]; {
	case len(set.files) > 1:
		c.Input.Path = strings.Join(names, " ")
	case first.stream != nil:
		c.Input.Path = "-"
	case first.kind.Plain():
		c.Input.Path, c.Input.Paths = first.name, nil
		return c, nil
	default:
		c.Input.Path = first.name
	}
	c.inputs = set
	return c, nil
}

// openAtOnce is how many files are inspected at a time, for file systems that are far away.
const openAtOnce = 16

// names returns what the user has named.
func (i Input) names() []string {
	if len(i.Paths) > 0 {
		return i.Paths
	}
	return []string{i.Path}
}

// missing reports whether a name can only mean a file, which does not exist.
func missing(name string) bool {
	_, err := os.Stat(name)
	return name != expand.Stdin && errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(name, "*?[") && !strings.HasPrefix(name, "@")
}

// openedInput inspects one file or stream.
func (c Config) openedInput(found expand.File) (inputFile, error) {
	if found.Info == nil {
		return inputFile{name: expand.Stdin, stream: c.Input.Stdin}, nil
	}
	file := inputFile{name: found.Name, path: absolute(found.Name), info: found.Info}
	if !found.Regular() || isOwnName(found.Name) {
		path, ok := "", false
		if found.Regular() {
			path, ok = commonName(found.Name, found.Info)
		}
		if !ok {
			return inputFile{name: found.Name, stream: streamOf(found)}, nil
		}
		file.name, file.path = path, path
	}
	opened, err := os.Open(file.name)
	if err != nil {
		return file, fault.New(fault.Usage, "open input: %w", err)
	}
	defer opened.Close()
	if c.Format != OpenAIBatch { // whose lines have the members that the API knows
		file.members = found.Members
	}
	if file.kind, err = decode.Detect(decode.File(opened, file.name, file.info.Size()), c.Input.Format, c.Input.Columns, file.members...); err != nil && !c.skips(err) {
		return file, err
	}
	if file.sum, err = sampleSum(opened, file.info.Size()); err != nil {
		return file, fault.New(fault.Usage, "read input %s: %w", file.name, err)
	}
	return file, nil
}

// skips reports whether the job continues without a file with this fault. The file is reported
// as skipped when it is its turn.
func (c Config) skips(err error) bool {
	e := fault.As(err)
	return c.Input.SkipBad && e != nil && e.Code == fault.BadInput
}

// streamOf returns the reader of a pipe or device.
func streamOf(found expand.File) io.Reader {
	if stdin, err := os.Stdin.Stat(); err == nil && os.SameFile(stdin, found.Info) {
		return os.Stdin // a socket cannot be reopened by name
	}
	return &lateFile{path: found.Name}
}

// membersNote says which members folders give to records.
func (i *inputs) membersNote() []string {
	if i == nil {
		return nil
	}
	var names []string
	for _, file := range i.files {
		for _, m := range file.members {
			if text := fmt.Sprintf("%s (%s)", m.Name, m.Type); !slices.Contains(names, text) {
				names = append(names, text)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"records get members from the names of their folders: " + some(names)}
}

// streams reports whether any input can be read only once.
func (i *inputs) streams() bool {
	if i == nil {
		return false
	}
	for _, file := range i.files {
		if file.stream != nil {
			return true
		}
	}
	return false
}

// fileCount returns the number of input files, 0 if a stream is among them.
func (c Config) fileCount() int {
	switch {
	case c.inputs == nil:
		return 1
	case c.inputs.streams():
		return 0
	}
	return len(c.inputs.files)
}

// inputPaths returns the input's files that exist on disk.
func (c Config) inputPaths() (paths []string) {
	switch {
	case c.inputs != nil:
		for _, file := range c.inputs.files {
			if file.path != "" {
				paths = append(paths, file.path)
			}
		}
	case c.Input.Path != "-" && c.Input.Path != "":
		paths = []string{c.Input.Path}
	}
	return paths
}
