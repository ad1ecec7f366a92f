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
// that would take the place of the job's input or output, or of another of them, or
// that cannot be written. Those without a path are passed over.
func CheckBeside(config Config, files ...NamedFile) error {
	folder, err := folderPath(config)
	if err != nil {
		return err
	}
	taken := config.files(folder)
	for _, file := range files {
		if file.Path == "" {
			continue
		}
		info, err := os.Stat(file.Path)
		switch {
		case err == nil && info.IsDir():
			return fault.New(fault.Usage, "%s %s is a folder; name a file in it", file.Name, file.Path)
		case err == nil && !info.Mode().IsRegular():
			continue // a device or a pipe holds nothing that could be lost
		}
		for _, other := range taken {
			if samePath(file.Path, other.Path) {
				return fault.New(fault.Usage, "%s %s is the file of the %s; name another", file.Name, file.Path, other.Name)
			}
		}
		for _, dir := range []NamedFile{{"job", folder}, {"output", config.Output}} {
			if (dir.Path == folder || keepsParts(dir.Path)) && isInside(file.Path, dir.Path) {
				return fault.New(fault.Usage, "%s %s is in the folder of the %s; name another place", file.Name, file.Path, dir.Name)
			}
		}
		if err := checkWritable(file); err != nil {
			return err
		}
		taken = append(taken, file)
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
