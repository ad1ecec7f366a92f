package orchestrator

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// NamedFile is a file, and what messages call it.
type NamedFile struct{ Name, Path string }

// CheckBeside refuses files that a program wants to write beside the job's own: one
// that would take the place of the job's input or output, of a file that the kernel is
// made of (read), or of another of them, that holds something else than gpurun writes
// there, or that cannot be written. Nor may the outputs take the place of what is read.
// Those without a path are passed over.
func CheckBeside(config Config, read []NamedFile, written ...NamedFile) error {
	folder, err := folderPath(config)
	if err != nil {
		return err
	}
	read = append(read, kernelFiles(folder, config)...)
	for _, file := range []NamedFile{{"the output", config.Output}, {"the errors file", config.Errors}} {
		if file.Path == "" || file.Path == "-" {
			continue
		}
		if err := checkNotOf(file, read); err != nil {
			return err
		}
	}
	taken := append(config.files(folder), read...)
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

// checkBeside checks one file; a device or a pipe holds nothing that could be lost.
func checkBeside(config Config, folder string, file NamedFile, taken []NamedFile) (device bool, err error) {
	info, err := os.Stat(file.Path)
	switch {
	case err == nil && info.IsDir():
		return false, fault.New(fault.Usage, "%s %s is a folder; name a file in it", file.Name, file.Path)
	case err == nil && !info.Mode().IsRegular():
		return true, nil
	}
	if err := checkNotOf(file, taken); err != nil {
		return false, err
	}
	for _, dir := range []NamedFile{{"job", folder}, {"output", config.Output}} {
		if (dir.Path == folder || keepsParts(dir.Path)) && isInside(file.Path, dir.Path) {
			return false, fault.New(fault.Usage, "%s %s is in the folder of the %s; name another place", file.Name, file.Path, dir.Name)
		}
	}
	if !isJSON(file.Path) {
		return false, fault.New(fault.Usage, "%s %s holds something else than gpurun writes there, and would be replaced; name another file", file.Name, file.Path)
	}
	return false, checkWritable(file)
}

func checkNotOf(file NamedFile, taken []NamedFile) error {
	for _, other := range taken {
		if samePath(file.Path, other.Path) {
			return fault.New(fault.Usage, "%s %s is the file of the %s; name another", file.Name, file.Path, other.Name)
		}
	}
	return nil
}

// isJSON reports whether a file may be replaced by a report or by events: it is one, as
// far as its first byte tells, or there is nothing to be lost.
func isJSON(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return true // whoever wants to write to it says what is wrong
	}
	defer file.Close()
	first := make([]byte, 1)
	n, _ := file.Read(first)
	return n == 0 || first[0] == '{'
}

// kernelFiles are those of the kernel of a job that is retried, or was begun before.
func kernelFiles(folder string, c Config) (files []NamedFile) {
	m, err := readManifest(filepath.Join(folder, manifestFile))
	if err != nil || c.Kernel != "" && c.Kernel != m.Kernel {
		return nil
	}
	for _, file := range append(m.Fingerprint.Kernel.Files, m.Fingerprint.Kernel.Modules...) {
		files = append(files, NamedFile{"kernel", file.Path})
	}
	return files
}

// checkApart refuses an input or an errors file in the job's folder, which is cleared when
// a job begins.
func checkApart(c Config, folder string) error {
	for _, file := range []NamedFile{{"input", c.Input}, {"errors file", c.Errors}} {
		if file.Path != "" && file.Path != "-" && isInside(file.Path, folder) {
			return fault.New(fault.Usage, "the %s %s is in the job folder %s, which gpurun clears; move it to another place", file.Name, file.Path, folder)
		}
	}
	return nil
}

// files are those that the job reads and writes. Those of a retry are the job's that
// it retries.
func (c Config) files(folder string) (files []NamedFile) {
	input, errorsFile := c.Input, c.Errors
	if m, err := readManifest(filepath.Join(folder, manifestFile)); err == nil && input == "" {
		input, errorsFile = m.Input, m.Errors
	}
	for _, file := range []NamedFile{{"input", input}, {"output", c.Output}, {"failed records", errorsFile}} {
		switch {
		case file.Path == "":
			continue
		case file.Path == "-" && file.Name == "input":
			file.Path = "/dev/stdin" // which may be a file
		case file.Path == "-":
			file.Path = "/dev/stdout"
		}
		files = append(files, file)
	}
	return files
}

// checkWritable tries, and leaves nothing behind: what is allowed does not tell of every
// file system whether it can be done.
func checkWritable(file NamedFile) error {
	path := realPath(file.Path)
	if dir := filepath.Dir(path); !isFolder(dir) {
		dir = filepath.Dir(file.Path)
		return fault.New(fault.Usage, "%s: the folder %s for %s does not exist: mkdir -p %s", file.Name, dir, file.Path, dir)
	}
	_, missing := os.Stat(path)
	opened, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fault.New(fault.Usage, "%s %s cannot be written: %w", file.Name, file.Path, err)
	}
	opened.Close()
	if errors.Is(missing, os.ErrNotExist) {
		_ = os.Remove(path)
	}
	return nil
}
