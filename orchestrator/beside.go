package orchestrator

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// NamedFile is a file and the name that messages use for it.
type NamedFile = spec.NamedFile

// CheckBeside validates the extra files that a program writes alongside the job. It
// rejects a file that would overwrite the job's input or output, a file the kernel
// consists of (read) or another extra file; one with contents that gpurun did not
// write; and one that is not writable. The outputs must not overwrite the files in read
// either. Files without a path are skipped.
func CheckBeside(config Config, read []NamedFile, written ...NamedFile) error {
	folder := spec.At(config.Output.Path).Folder(config.Resume.WorkDir)
	job, kernel := config.files(folder)
	read = append(read, kernel...)
	for _, file := range append(spec.Named("the output", config.Output.Path), spec.Named("the errors file", config.Output.Errors)...) {
		if err := checkNotOf(file, read); err != nil {
			return err
		}
	}
	taken := append(job, read...)
	for _, file := range written {
		if file.Path == "" {
			continue
		}
		if device, err := checkBeside(config, folder, file, taken); err != nil {
			return err
		} else if !device {
			taken = append(taken, file)
		}
	}
	return nil
}

// checkBeside checks one file. A device or a pipe has no contents to lose.
func checkBeside(config Config, folder string, file NamedFile, taken []NamedFile) (device bool, err error) {
	info, err := os.Stat(file.Path)
	switch {
	case err == nil && info.IsDir():
		return false, fault.OutputIsFolder.New("%s %s is a folder; name a file in it", file.Name, file.Path)
	case err == nil && !info.Mode().IsRegular():
		return true, nil
	}
	if err := checkNotOf(file, taken); err != nil {
		return false, err
	}
	for _, dir := range append(spec.Named("job", folder), spec.Named("output", config.Output.Path)...) { // nothing is inside a file
		if files.Inside(file.Path, dir.Path) {
			return false, fault.SameFile.New("%s %s is inside the %s folder; choose another place", file.Name, file.Path, dir.Name)
		}
	}
	if !isOurs(file.Path) {
		return false, fault.NotOurs.New("%s %s exists and was not written by gpurun, so it is not overwritten; choose another file", file.Name, file.Path)
	}
	return false, checkWritable(file)
}

func checkNotOf(file NamedFile, taken []NamedFile) error {
	for _, other := range taken {
		if files.Same(file.Path, other.Path) {
			return fault.SameFile.New("%s %s is the same file as the %s; choose another", file.Name, file.Path, other.Name)
		}
	}
	return nil
}

// isOurs reports whether a report, events or metrics may overwrite a file: judging by its
// contents it is such a file, or it has none to lose.
func isOurs(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return true // the writer reports what is wrong
	}
	defer file.Close()
	// Metrics of the Go runtime come before gpurun's own.
	begin, _ := io.ReadAll(io.LimitReader(file, 64<<10))
	return len(begin) == 0 || begin[0] == '{' || bytes.HasPrefix(begin, []byte("# HELP ")) && bytes.Contains(begin, []byte("\n# HELP gpurun_"))
}

// files returns the files that the job reads and writes, and the kernel's files if it was started
// before. For a retry, it returns the files of the job being retried.
func (c Config) files(path string) (job, kernel []NamedFile) {
	inputs, errorsFile := []string{c.Input.Path}, c.Output.Errors
	m, unread := folder.At(path).Manifest()
	if unread == nil && (c.Kernel.Name == "" || c.Kernel.Name == m.Spec.Kernel.Name) {
		for _, file := range slices.Concat(m.Kernel.Files, m.Kernel.Modules) {
			kernel = append(kernel, spec.Named("kernel", file.Path)...)
		}
	}
	if unread == nil && c.Input.Path == "" {
		inputs, errorsFile = []string{m.Input.Path}, m.Spec.Output.Errors
	} else if found, _, err := expand.Files(inputNames(c.Input), folder.Origins(c.Output, c.Resume.WorkDir)); err == nil { // else the job reports what is wrong
		inputs = nil
		for _, file := range found {
			inputs = append(inputs, file.Name)
		}
	}
	add := func(name, path, stream string) {
		if path == "-" {
			path = stream // which may be a file
		}
		job = append(job, spec.Named(name, path)...)
	}
	add("output", c.Output.Path, "/dev/stdout")
	add("failed records", errorsFile, "/dev/stdout")
	for _, path := range inputs {
		add("input", path, "/dev/stdin")
	}
	return job, kernel
}

// checkWritable tries to open the file and leaves nothing behind. Permissions alone do
// not tell whether every file system allows it.
func checkWritable(file NamedFile) error {
	path := files.RealPath(files.Absolute(file.Path))
	if dir := filepath.Dir(path); !files.IsFolder(dir) {
		dir = filepath.Dir(file.Path)
		return fault.NoFolder.New("%s: the folder %s for %s does not exist: mkdir -p %s", file.Name, dir, file.Path, dir)
	}
	_, missing := os.Stat(path)
	opened, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fault.WriteFailed.Of(fault.Usage, "%s %s cannot be written: %w", file.Name, file.Path, err)
	}
	opened.Close()
	if errors.Is(missing, os.ErrNotExist) {
		_ = os.Remove(path)
	}
	return nil
}
