package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
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
	// Format is that of the output, Parts whether it is a folder of parts.
	Format string `json:"format"`
	Parts  bool   `json:"parts,omitempty"`
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
	data, _ := json.Marshal(m)
	return chunk.Checksum(data).String()
}

// mergeable are the formats of outputs that can be concatenated.
var mergeable = []string{"jsonl", "jsonl.gz", "jsonl.zst"}

// Run is a run in its shared folder.
type Run struct {
	Manifest
	// Dir is the run folder.
	Dir string

	number int // from 1 on; see Correct
}

// Folder returns the run folder of an output.
func Folder(output string) string {
	if full, err := filepath.Abs(output); err == nil {
		output = full
	}
	return filepath.Clean(output) + folderSuffix
}

func (r *Run) join(names ...string) string {
	return filepath.Join(append([]string{r.Dir}, names...)...)
}

// Open opens the run of an output, the last one if it was corrected.
func Open(output string) (*Run, error) {
	return open(output, latest(Folder(output)))
}

func open(output string, number int) (*Run, error) {
	r := &Run{Dir: numbered(Folder(output), number), number: number}
	path := r.join(manifestFile)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fault.NoRun.New("%s is not divided into shards: there is no %s", output, path)
	}
	for _, dir := range []string{Folder(output), r.Dir} {
		if err := makePrivate(dir); err != nil {
			return nil, storage("open the run folder", err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, storage("read the run's manifest", err)
	}
	if err := json.Unmarshal(data, &r.Manifest); err != nil {
		return nil, fault.RunDamaged.New("%s is damaged: %w", path, err)
	}
	switch {
	case r.Version != manifestVersion:
		return nil, fault.RunDamaged.New("%s has version %d, but this gpurun writes version %d", path, r.Version, manifestVersion)
	case compact(&r.Manifest) != nil || r.Sum != r.sum():
		return nil, fault.RunDamaged.New("%s is damaged: its checksum is wrong", path)
	case r.Shards < 1 || r.Shards > MaxShards || r.Records < 0 || r.First < 0:
		return nil, fault.RunDamaged.New("%s is damaged: %d shards of %d records", path, r.Shards, r.Records)
	}
	if r.Output = strings.TrimSuffix(Folder(output), folderSuffix); r.Parts {
		r.Output += "/"
	}
	return r, nil
}

// makePrivate refuses a run folder of another user, who could make this one's processes write
// to any file, and removes access for others.
func makePrivate(path string) error {
	err := files.MakePrivate(path)
	var other *files.NotOwnError
	if errors.As(err, &other) {
		return fault.RunFolderTaken.New("the run folder %s belongs to %s, not to you; remove it, or name another output", path, other.Owner)
	}
	return err
}

// compact undoes the indentation of members that only the caller knows.
func compact(m *Manifest) error {
	for _, member := range []*json.RawMessage{&m.Print, &m.Index} {
		if *member == nil {
			continue
		}
		data, err := json.Marshal(*member)
		if err != nil {
			return err
		}
		*member = data
	}
	return nil
}

// Create creates a run. If another process has created one for the same output, it returns
// that: the caller must compare the two. ID, Created and Sum are set here.
func Create(m Manifest) (*Run, error) { return create(m, 1) }

func create(m Manifest, number int) (*Run, error) {
	if m.Shards < 1 || m.Shards > MaxShards {
		return nil, fault.BadShardNumber.New("a run has 1 to %d shards, not %d", MaxShards, m.Shards).Set("shard")
	}
	if !slices.Contains(mergeable, m.Format) {
		return nil, fault.NotForShards.New("shards of the format %s cannot be merged; use one of %s", m.Format, strings.Join(mergeable, ", ")).Set("output-format")
	}
	m.Version, m.ID, m.Created = manifestVersion, randomName(), time.Now().UTC().Truncate(time.Second)
	if err := compact(&m); err != nil {
		return nil, err
	}
	m.Sum = m.sum()
	r := &Run{Manifest: m, Dir: numbered(Folder(m.Output), number), number: number}
	for _, dir := range []string{"", attemptsDir, claimsDir, commitsDir} {
		if err := os.Mkdir(r.join(dir), files.PrivateDirMode); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, storage("create the run folder", err)
		}
		if err := makePrivate(r.join(dir)); err != nil {
			return nil, storage("create the run folder", err)
		}
	}
	own := r.join(manifestFile + "." + m.ID)
	if err := writeJSON(own, m); err != nil {
		return nil, err
	}
	defer os.Remove(own)
	won, err := publish(own, r.join(manifestFile))
	if err != nil {
		return nil, err
	}
	if !won {
		return open(m.Output, number)
	}
	return r, nil
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
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// key is the name of a shard in file names.
func key(shard int) string { return fmt.Sprintf("%05d", shard) }

// mergeKey is that of the merge.
const mergeKey = "merge"

// outputName is what the output of an attempt is called.
func (m Manifest) outputName() string {
	if m.Parts {
		return "out/"
	}
	return "out." + m.Format
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
