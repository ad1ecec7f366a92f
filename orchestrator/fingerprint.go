package orchestrator

import (
	"slices"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// identity is everything a job's output depends on. A resumed job must have the same one.
type identity struct {
	Spec   *spec.Spec  `json:"spec"`
	Input  inputPrint  `json:"input"`
	Kernel kernelPrint `json:"kernel"`
}

type inputPrint struct {
	// Path is the only file, or what the user wrote, or - for a stream.
	Path string `json:"path"`
	// Files are all files; none for a stream.
	Files []source.State `json:"files,omitempty"`
}

type kernelPrint struct {
	// Interpreter is the Python that runs the kernel, "" if none does. It may change.
	Interpreter string `json:"interpreter,omitempty"`
	// Files are the kernel's own files: its program and scripts.
	Files []filePrint `json:"files,omitempty"`
	// Modules are the other files the kernel has loaded so far in this job. They are
	// checksummed in full, whatever their size.
	Modules []filePrint `json:"modules,omitempty"`
}

type filePrint struct {
	Path string `json:"path"`
	Sum  string `json:"sum"`
}

// asBefore returns an input as it should be compared with that of the job: files whose content is
// the same get their former times, and touched is true.
func (m *manifest) asBefore(now inputPrint, log *input.Log, done int64) (_ inputPrint, touched bool, err error) {
	now.Files, touched, err = source.AsBefore(now.Files, m.Input.Files, m.Cut.Sums, log, done)
	return now, touched, err
}

// differences describes how an input differs from what it was. How files were named does not
// matter.
func (i inputPrint) differences(was inputPrint) []string {
	texts := source.Differences(was.Files, i.Files)
	if i.Path != was.Path && (len(was.Files) == 0 || len(i.Files) == 0) {
		texts = append([]string{spec.Difference("the input's path", was.Path, i.Path)}, texts...)
	}
	return texts
}

// identify reads the files that a job depends on. programs are the kernel's.
func identify(c *order, programs []string) (identity, error) {
	id := identity{Spec: c.Stored(), Input: inputPrint{Path: c.Input.Path, Files: c.inputs.States()}}
	if paths := c.inputs.Paths(); len(paths) == 1 && c.Input.Path != "-" {
		id.Input.Path = files.Absolute(paths[0])
	}
	if err := c.inputs.Check(); err != nil {
		return id, err
	}
	for _, path := range programs {
		sum, err := filesum.Program(path)
		if err != nil {
			return id, fault.KernelFile.New("read kernel: %w", err)
		}
		id.Kernel.Files = append(id.Kernel.Files, filePrint{Path: path, Sum: sum})
	}
	return id, nil
}

// changes returns how the job differs from the one that was started.
func (id identity) changes(old identity) (list []spec.Change) {
	for _, text := range id.Input.differences(old.Input) {
		list = append(list, spec.Change{What: "input", Text: text})
	}
	before, now := slices.Concat(old.Kernel.Files, old.Kernel.Modules), slices.Concat(id.Kernel.Files, id.Kernel.Modules)
	if !slices.Equal(before, now) {
		list = append(list, spec.Change{What: "kernel", Text: "the kernel's files changed: " + changedFiles(before, now)})
	}
	return append(list, id.Spec.Changes(old.Spec)...)
}
