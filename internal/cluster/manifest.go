package cluster

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/files"
)

// MaxShards bounds how many files the folders of a run have.
const MaxShards = 100_000

const (
	manifestVersion = 1
	manifestFile    = "run.json"
	attemptsDir     = "attempts"
	claimsDir       = "claims"
	commitsDir      = "commits"
	layoutFile      = "layout.json"
	mergedFile      = "merged.json"
	folderSuffix    = ".shards"
)

// Manifest is what all shards of a run must agree on.
type Manifest struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Output and Errors are the files that the merge writes; absolute paths. The file has no
	// output: that is always the one next to the run folder.
	Output string `json:"-"`
	Errors string `json:"errors,omitempty"`
	// Format is the format of the output, Parts whether it is a folder of parts.
	Format string `json:"format"`
	Parts  bool   `json:"parts,omitempty"`
	// Columns is what is known of the columns of an output that has some, before any result;
	// Arrays are the files of columns beside the output.
	Columns *columns.Spec  `json:"columns,omitempty"`
	Arrays  []commit.Array `json:"arrays,omitempty"`
	// Shards is how many there are; Records of the input, from First on, are divided among
	// them.
	Shards  int   `json:"shards"`
	First   int64 `json:"first"`
	Records int64 `json:"records"`
	// Command is how the run was started, for messages.
	Command []string `json:"command,omitempty"`
	// Print is everything that the output depends on. The caller compares it.
	Print json.RawMessage `json:"print,omitempty"`
	// Index is where the shards are in the input, so that none has to count what precedes
	// it. Only the caller knows its content.
	Index json.RawMessage `json:"index,omitempty"`
	// Sum is the checksum of everything else.
	Sum string `json:"sum"`
}

// Range returns the records of a shard: a contiguous range by ceiling division. Shards
// behind the end have no records.
func (m Manifest) Range(shard int) (first, records int64) {
	size := chunk.Size(m.Records, m.Shards, 1)
	first = min(int64(shard)*size, m.Records)
	return m.First + first, min(size, m.Records-first)
}

func (m Manifest) sum() string {
	m.Sum = ""
	data, _ := json.Marshal(m) // the file indents it
	return chunk.Checksum(data).String()
}

// writeJSON writes a small file durably.
func writeJSON(path string, value any) error {
	return storage("write "+path, files.WriteJSON(path, value, files.PrivateMode))
}

// readJSON reads a file that was published or renamed, and is therefore complete.
func readJSON(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}

func randomName() string {
	return strings.ToLower(rand.Text()[:12])
}

// key is the name of a shard in file names.
func key(shard int) string { return fmt.Sprintf("%05d", shard) }

// mergeKey is the name of the merge in file names.
const mergeKey = "merge"

// outputName is what the output of an attempt is called.
func (m Manifest) outputName() string {
	if m.Parts {
		return "out/"
	}
	return "out." + m.Format
}

// arrayName is what an attempt calls the file of an array: it ends as the user has named it, because
// the ending says how values are stored.
func arrayName(a commit.Array) string {
	name := fmt.Sprintf("column-%d.npy", a.Column)
	for _, ending := range []string{".mask.npy", ".f16.npy", ".f16.mask.npy"} {
		if strings.HasSuffix(a.Path, ending) {
			name = fmt.Sprintf("column-%d%s", a.Column, ending)
		}
	}
	return name
}

// joinOutput is filepath.Join for a folder of parts, whose name must end in a slash.
func joinOutput(dir, name string) string {
	path := filepath.Join(dir, name)
	if strings.HasSuffix(name, "/") {
		path += "/"
	}
	return path
}

// replaceJSON replaces a small file at once, but not durably.
func replaceJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	aside := path + ".tmp"
	if err := os.WriteFile(aside, append(data, '\n'), files.PrivateMode); err != nil {
		return err
	}
	return os.Rename(aside, path)
}
