package folder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// jobFiles recognizes the files that gpurun jobs have written among inputs. A folder that
// holds data often holds results of it too, and a second job on the folder would take them
// for data.
type jobFiles struct {
	own     []string                   // absolute names of this job's files
	folders map[string]map[string]bool // the names of outputs in each folder
}

// Origins returns what recognizes the files of jobs among the inputs of a job with this output.
func Origins(o spec.Output, workDir string) expand.OriginOf {
	j := &jobFiles{folders: make(map[string]map[string]bool)}
	// A file that only has the name of the output is data, which must not be overwritten.
	if m, err := At(spec.At(o.Path).Folder(workDir)).Manifest(); err != nil || !m.Writes(o.Path) {
		return j.originOf
	}
	for _, path := range []string{o.Path, o.Errors} {
		if path != "" && path != "-" {
			j.own = append(j.own, files.Absolute(path))
		}
	}
	return j.originOf
}

// originOf is an expand.OriginOf.
func (j *jobFiles) originOf(folder, name string) expand.Origin {
	path := files.Absolute(name)
	if slices.ContainsFunc(j.own, func(own string) bool { return path == own || strings.HasPrefix(path, own+"/") }) {
		return expand.Own
	}
	for at, top := path, files.Absolute(folder); at != "/" && at != top; at = filepath.Dir(at) {
		dir, base := filepath.Split(at)
		if j.outputsIn(filepath.Clean(dir))[base] {
			return expand.Output
		}
	}
	return expand.Data
}

// outputsIn returns the names of the outputs in a folder, files and folders.
func (j *jobFiles) outputsIn(dir string) map[string]bool {
	if names, known := j.folders[dir]; known {
		return names
	}
	names := make(map[string]bool)
	j.folders[dir] = names
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		output, isJob := strings.CutSuffix(entry.Name(), spec.FolderSuffix)
		switch {
		case !entry.IsDir():
			if folder, ok := strings.CutSuffix(entry.Name(), commit.ManifestEnding); ok {
				if _, err := commit.ReadManifest(filepath.Join(dir, folder)); err == nil {
					names[entry.Name()], names[folder] = true, true
				}
			}
		case isJob:
			names[output] = names[output] || j.addErrors(filepath.Join(dir, entry.Name()), dir, names)
		}
	}
	return names
}

// addErrors adds the errors file of a job, if it is in the same folder. It reports whether
// the folder is a job's.
func (j *jobFiles) addErrors(folder, dir string, names map[string]bool) bool {
	m, err := At(folder).Manifest()
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	if path := m.Spec.Output.Errors; path != "" && filepath.Dir(path) == dir {
		names[filepath.Base(path)] = true
	}
	return true
}
