package spec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Checks of the places that a job writes to, before any work.

// CheckFolders catches a mistyped path before the job folder is created.
func (s *Spec) CheckFolders() error {
	if dir := s.Resume.WorkDir; dir != "" && !files.IsFolder(dir) {
		return fault.NoFolder.New("the work folder %s does not exist: mkdir -p %s", dir, dir)
	}
	paths := []string{s.Output.Path, s.Output.Errors}
	for _, a := range s.Output.Arrays {
		paths = append(paths, a.Path)
	}
	for _, path := range paths {
		if path == "" || path == "-" {
			continue
		}
		if scheme, _, remote := strings.Cut(path, "://"); remote {
			return fault.RemotePath.New("output %s: gpurun writes files and standard output, not %s://; write a file and upload it", path, scheme)
		}
		dir := filepath.Dir(filepath.Clean(path))
		if files.IsFolder(dir) { // the target of a link needs one, too
			dir = filepath.Dir(files.RealPath(files.Absolute(path)))
		}
		if !files.IsFolder(dir) {
			return fault.NoFolder.New("the folder %s for %s does not exist: mkdir -p %s", dir, path, dir)
		}
	}
	return nil
}

// CheckOutputs refuses to replace files that the user or another job may need.
func (s *Spec) CheckOutputs() error {
	switch s.Results.Target.kind {
	case parts:
		if err := s.checkParts(); err != nil {
			return err
		}
	case file:
		if s.Output.Path == "" {
			return nil // a plan needs none; Run requires one
		}
		if err := s.checkFile("output", s.Output.Path); err != nil {
			return err
		}
	}
	if err := s.checkArrayFiles(); err != nil || s.Output.Errors == "" {
		return err
	}
	if s.Output.Errors == "-" || files.Same(s.Output.Errors, s.Output.Path) {
		return fault.SameFile.New("the errors file must not be the output").Set("errors")
	}
	if s.Results.Errors.Kept() {
		if format, _, err := encode.ByPath("errors file", s.Output.Errors); err != nil || format.Encodes() {
			return fault.OutputFormat.New("the errors file %s would contain JSON lines; name it *%s", s.Output.Errors, encode.Lines().Ending())
		}
	}
	return s.checkFile("errors file", s.Output.Errors)
}

func (s *Spec) checkFile(what, path string) error {
	for _, in := range s.Inputs {
		if files.Same(path, in) {
			return fault.SameFile.New("the %s %s is the input itself; name another file", what, path)
		}
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		hint := ""
		if what == "output" {
			hint = fmt.Sprintf(", or write %s/ for the output in parts", path)
		}
		return fault.OutputIsFolder.New("the %s %s is a folder; name a file in it%s", what, path, hint)
	case err == nil && info.Mode().IsRegular() && !s.Output.Force:
		return fault.OutputExists.New("the %s %s already exists", what, path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fault.NoFolder.New("%s: %w", what, err)
	}
	return nil
}

// checkArrayFiles refuses arrays that exist or belong to something else.
func (s *Spec) checkArrayFiles() error {
	for _, a := range s.Results.Arrays {
		for _, other := range append(Named("output", s.Output.Path), Named("errors file", s.Output.Errors)...) {
			if files.Same(other.Path, a.Path) {
				return fault.SameFile.New("the array %s is the %s", a.Path, other.Name).Set("column")
			}
		}
		if files.Inside(a.Path, s.Output.Path) {
			return fault.SameFile.New("the array %s is in the output folder, which is replaced as a whole; choose another place", a.Path).Set("column")
		}
		if err := s.checkFile("array", a.Path); err != nil {
			return err
		}
	}
	return nil
}

// checkParts refuses a folder of parts that would replace files gpurun did not write.
func (s *Spec) checkParts() error {
	path, dir := s.Output.Path, filepath.Clean(s.Output.Path)
	for _, other := range slices.Concat(Named("errors file", s.Output.Errors), Named("work folder", s.Resume.WorkDir), Named("input", s.Inputs...)) {
		if files.Inside(other.Path, dir) {
			return fault.SameFile.New("the %s %s is in the output folder %s, which is replaced as a whole; choose another place", other.Name, other.Path, path)
		}
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fault.WriteFailed.Of(fault.Usage, "output: %w", err)
	case len(entries) > 0 && !s.Output.Force:
		return fault.OutputExists.New("the output folder %s already exists", path)
	}
	if err := commit.Replaceable(dir); err != nil {
		return fault.OutputIsFolder.New("the output folder %s cannot be replaced: %w; choose another or move it away", path, err)
	}
	return nil
}

// CheckApart rejects an input or errors file inside the job folder, which is cleared
// when a job starts.
func (s *Spec) CheckApart(folder string) error {
	for _, other := range append(Named("errors file", s.Output.Errors), Named("input", s.Inputs...)...) {
		if files.Inside(other.Path, folder) {
			return fault.SameFile.New("the %s %s is in the job folder %s, which gpurun clears; move it to another place", other.Name, other.Path, folder)
		}
	}
	return nil
}

// NotMade is the fault of a job folder that cannot be created.
func (s *Spec) NotMade(path string, err error) error {
	e := fault.JobFiles.Of(KindOfDisk(err), "make job folder: %w", err)
	switch dir, permission := s.Resume.WorkDir, errors.Is(err, os.ErrPermission); {
	case permission && dir != "":
		return fault.NoPermission.New("no permission to write to the work directory %s", dir).By(err).Set("work-dir")
	case dir == "" && s.Results.Target.kind == stream:
		return e.Set("work-dir")
	case permission:
		return fault.NoPermission.New("no permission to write to the folder %s: choose another one for the output", filepath.Dir(path)).By(err)
	}
	return e
}

// KindOfDisk distinguishes a disk that cannot be written now from a wrong path.
func KindOfDisk(err error) fault.Kind {
	if files.Unwritable(err) {
		return fault.Storage
	}
	return fault.Usage
}

// NamedFile is a file and the name that messages use for it.
type NamedFile struct{ Name, Path string }

// Named gives a name to those paths that are files.
func Named(name string, paths ...string) (list []NamedFile) {
	for _, path := range paths {
		if path != "" && path != "-" {
			list = append(list, NamedFile{name, path})
		}
	}
	return list
}
