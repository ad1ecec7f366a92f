package orchestrator

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// recordsOutput reports whether a folder belongs to the job that writes this output.
func recordsOutput(folder, output string) bool {
	m, err := readManifest(filepath.Join(folder, manifestFile))
	return err == nil && m.writes(output)
}

// writes reports whether the job was started for this output, under any name.
func (m *manifest) writes(output string) bool {
	return realPath(m.Spec.Output.Path) == realPath(output)
}

// movedWith returns where a file of the job is now that its output is at this path. A file in
// the output's folder, or below, moves with the output. with is false for others, and for a
// file that a job shares with its copy.
func (m *manifest) movedWith(output, path string) (now string, with bool) {
	if m.writes(output) {
		return path, true
	}
	inside, err := filepath.Rel(filepath.Dir(filepath.Clean(m.Spec.Output.Path)), path)
	if err != nil || !filepath.IsLocal(inside) {
		return path, false
	}
	now = filepath.Join(filepath.Dir(absolute(output)), inside)
	if _, err := os.Stat(filepath.Clean(m.Spec.Output.Path) + spec.FolderSuffix); err == nil && realPath(now) == realPath(path) {
		return path, false
	}
	return now, true
}

// checkOwner refuses a folder in a work folder that records another output.
func (f *folder) checkOwner(output string) error {
	if spec.At(output).Owns(f.path) {
		return nil
	}
	m, err := readManifest(f.join(manifestFile))
	if err != nil || m.writes(output) {
		return nil // an unreadable manifest is reported where it is needed
	}
	return fault.JobFolderTaken.New("the job folder %s belongs to the output %s, not to %s; move it or use another work folder",
		f.path, m.Spec.Output.Path, output)
}

func randomName() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
