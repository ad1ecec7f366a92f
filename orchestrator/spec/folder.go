package spec

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// A job is identified by the location of its output. Its folder is next to the output
// and moves with it. In a work folder, which serves many outputs, the folder's name
// contains a hash of the output's path, and job.json must record that path.

// FolderSuffix ends the name of every job folder of an output file.
const FolderSuffix = ".gpurun"

// Folder returns where the folder of the job with this output is or will be created.
func (t Target) Folder(workDir string) string {
	if t.kind == stream {
		return streamFolder(workDir)
	}
	beside := t.Beside()
	if workDir == "" || files.Same(workDir, filepath.Dir(beside)) {
		return beside
	}
	return filepath.Join(files.Absolute(workDir), hashedName(t.Name))
}

// Beside returns the job folder next to the output.
func (t Target) Beside() string { return files.Absolute(t.Name) + FolderSuffix }

// Owns reports whether a job folder can only belong to this output, because of its name.
func (t Target) Owns(folder string) bool { return t.kind == stream || folder == t.Beside() }

// Job returns the folder of the job that writes, or wrote, an output.
func Job(output, workDir string) (string, error) {
	t := At(output)
	if !t.Kept() {
		return "", fault.NeedsFile.New("%s is a stream; name the output file of a job", output)
	}
	return t.Folder(workDir), nil
}

// hashedName is the name of a job folder in a work folder: out.jsonl-3f2a91bc04.gpurun.
func hashedName(output string) string {
	sum := sha256.Sum256([]byte(files.RealPath(files.Absolute(output))))
	return fmt.Sprintf("%s-%s%s", filepath.Base(files.Absolute(output)), hex.EncodeToString(sum[:5]), FolderSuffix)
}

// streamFolder returns a new name each time: a stream is never resumed.
func streamFolder(workDir string) string {
	if workDir == "" {
		workDir = StateDir()
	}
	name := fmt.Sprintf("%s-%d-%s", time.Now().UTC().Format("20060102-150405"), os.Getpid(), rand.Text()[:6])
	return filepath.Join(files.Absolute(workDir), name)
}

// StateDir returns where jobs without an output file are kept.
func StateDir() string {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "gpurun", "jobs")
}
