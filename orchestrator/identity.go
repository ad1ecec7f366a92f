package orchestrator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
)

// A job is identified by the location of its output. Its folder is next to the output
// and moves with it. In a work folder, which serves many outputs, the folder's name
// contains a hash of the output's path, and job.json must record that path.

// folderSuffix ends the name of every job folder of an output file.
const folderSuffix = ".gpurun"

// folderPath returns where this job's folder is or will be created.
func folderPath(c Config) string {
	if isStream(c.Output.Path) {
		return streamFolderPath(c)
	}
	beside := absolute(c.Output.Path) + folderSuffix
	if c.Resume.WorkDir == "" || samePath(c.Resume.WorkDir, filepath.Dir(beside)) {
		return beside
	}
	return filepath.Join(absolute(c.Resume.WorkDir), hashedName(c.Output.Path))
}

// hashedName is the name of a job folder in a work folder: out.jsonl-3f2a91bc04.gpurun.
func hashedName(output string) string {
	sum := sha256.Sum256([]byte(realPath(output)))
	return fmt.Sprintf("%s-%s%s", filepath.Base(absolute(output)), hex.EncodeToString(sum[:5]), folderSuffix)
}

// recordsOutput reports whether a folder belongs to the job that writes this output.
func recordsOutput(folder, output string) bool {
	m, err := readManifest(filepath.Join(folder, manifestFile))
	return err == nil && m.writes(output)
}

// writes reports whether the job was started for this output, under any name.
func (m *manifest) writes(output string) bool { return realPath(m.Output) == realPath(output) }

// movedWith returns where a file of the job is now that its output is at this path. A file in
// the output's folder, or below, moves with the output. with is false for others, and for a
// file that a job shares with its copy.
func (m *manifest) movedWith(output, path string) (now string, with bool) {
	if m.writes(output) {
		return path, true
	}
	inside, err := filepath.Rel(filepath.Dir(filepath.Clean(m.Output)), path)
	if err != nil || !filepath.IsLocal(inside) {
		return path, false
	}
	now = filepath.Join(filepath.Dir(absolute(output)), inside)
	if _, err := os.Stat(filepath.Clean(m.Output) + folderSuffix); err == nil && realPath(now) == realPath(path) {
		return path, false
	}
	return now, true
}

// checkOwner refuses a folder in a work folder that records another output.
func (f *folder) checkOwner(c Config) error {
	if isStream(c.Output.Path) || f.path == absolute(c.Output.Path)+folderSuffix {
		return nil
	}
	m, err := readManifest(f.join(manifestFile))
	if err != nil || m.writes(c.Output.Path) {
		return nil // an unreadable manifest is reported where it is needed
	}
	return fault.New(fault.Conflict, "the job folder %s belongs to the output %s, not to %s; move it or use another work folder",
		f.path, m.Output, c.Output.Path)
}

// streamFolderPath returns a new name each time: a stream is never resumed.
func streamFolderPath(c Config) string {
	state := c.Resume.WorkDir
	if state == "" {
		state = stateDir()
	}
	name := fmt.Sprintf("%s-%d-%s", time.Now().UTC().Format("20060102-150405"), os.Getpid(), randomName()[:6])
	return filepath.Join(absolute(state), name)
}
