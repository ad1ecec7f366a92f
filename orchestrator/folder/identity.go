package folder

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/orchestrator/source"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Identity is everything a job's output depends on. A resumed job must have the same one.
type Identity struct {
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

// asBefore returns an input as it should be compared with the job's: files whose content is
// the same get their former times, and touched is true.
func (m *Manifest) asBefore(now inputPrint, log *input.Log, done int64) (_ inputPrint, touched bool, err error) {
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

// Identify reads the files that a job depends on. programs are the kernel's.
func Identify(s *spec.Spec, inputs *source.Inputs, programs []string) (Identity, error) {
	id := Identity{Spec: s.Stored(), Input: inputPrint{Path: s.Input.Path, Files: inputs.States()}}
	if paths := inputs.Paths(); len(paths) == 1 && s.Input.Path != "-" {
		id.Input.Path = files.Absolute(paths[0])
	}
	if err := inputs.Check(); err != nil {
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

// Changes returns how the job differs from the one that was started.
func (id Identity) Changes(old Identity) (list []spec.Change) {
	for _, text := range id.Input.differences(old.Input) {
		list = append(list, spec.Change{What: "input", Text: text})
	}
	before, now := slices.Concat(old.Kernel.Files, old.Kernel.Modules), slices.Concat(id.Kernel.Files, id.Kernel.Modules)
	if !slices.Equal(before, now) {
		list = append(list, spec.Change{What: "kernel", Text: "the kernel's files changed: " + changedFiles(before, now)})
	}
	return append(list, id.Spec.Changes(old.Spec)...)
}

// DropNew drops data that the same kernel did not have when the job began.
func (k *kernelPrint) DropNew(old kernelPrint, data []string) {
	k.Files = slices.DeleteFunc(k.Files, func(f filePrint) bool {
		return slices.Contains(data, f.Path) && old.File(f.Path) == nil
	})
}

// Drop drops a file of the kernel.
func (k *kernelPrint) Drop(path string) {
	k.Files = slices.DeleteFunc(k.Files, func(f filePrint) bool { return f.Path == path })
}

// Load adds a file that the kernel has loaded.
func (k *kernelPrint) Load(path, sum string) {
	k.Modules = append(k.Modules, filePrint{Path: path, Sum: sum})
}

// File returns what is known about a file of the kernel, or nil if it has not been
// loaded yet.
func (k *kernelPrint) File(path string) *filePrint {
	for _, files := range [][]filePrint{k.Files, k.Modules} {
		if i := slices.IndexFunc(files, func(f filePrint) bool { return f.Path == path }); i >= 0 {
			return &files[i]
		}
	}
	return nil
}

// CurrentModules recomputes the checksums of an earlier run's modules. A missing file has no
// checksum.
func (k *kernelPrint) CurrentModules() []filePrint {
	now := slices.Clone(k.Modules)
	for i := range now {
		now[i].Sum, _ = filesum.Whole(now[i].Path)
	}
	return now
}

// DropMissing drops modules that no longer exist.
func (k *kernelPrint) DropMissing() {
	k.Modules = slices.DeleteFunc(k.Modules, func(f filePrint) bool { return f.Sum == "" })
}

// changedFiles names the files that differ.
func changedFiles(old, now []filePrint) string {
	var names []string
	for _, file := range now {
		if !slices.Contains(old, file) {
			names = append(names, file.Path)
		}
	}
	for _, file := range old {
		if !slices.Contains(now, file) && !slices.Contains(names, file.Path) {
			names = append(names, file.Path)
		}
	}
	return strings.Join(names, ", ")
}
