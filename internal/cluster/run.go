package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// Run is a run in its shared folder.
type Run struct {
	Manifest
	// Dir is the run folder.
	Dir string

	number int // from 1 on; see Correct
}

// Folder returns the run folder of an output.
func Folder(output string) string {
	return files.Absolute(output) + folderSuffix
}

func (r *Run) join(names ...string) string {
	return filepath.Join(append([]string{r.Dir}, names...)...)
}

// Agreement returns what the machines have agreed on.
func (r *Run) Agreement() Agreement { return Agreement{path: r.join(layoutFile), run: r.ID} }

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
	case r.Sum != r.sum():
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
	if other, ok := errors.AsType[*files.NotOwnError](err); ok {
		return fault.RunFolderTaken.New("the run folder %s belongs to %s, not to you; remove it, or name another output", path, other.Owner)
	}
	return err
}

// Create creates a run. If another process has created one for the same output, it returns
// that: the caller must compare the two. ID, Created and Sum are set here.
func Create(m Manifest) (*Run, error) { return create(m, 1) }

func create(m Manifest, number int) (*Run, error) {
	if m.Shards < 1 || m.Shards > MaxShards {
		return nil, fault.BadShardNumber.New("a run has 1 to %d shards, not %d", MaxShards, m.Shards).Set("shard")
	}
	m.Version, m.ID, m.Created = manifestVersion, randomName(), time.Now().UTC().Truncate(time.Second)
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

// Correct replaces a run of which no shard is committed, and none is known to be computed by a
// process. If another process corrects it first, Correct returns that one's run: the
// caller must compare the two.
func (r *Run) Correct(m Manifest) (*Run, error) {
	return create(m, r.number+1)
}

// Corrected returns the manifests that corrections have replaced.
func (r *Run) Corrected() (list []Manifest, err error) {
	for number := 1; number < r.number; number++ {
		wrong, err := open(r.Output, number)
		if err != nil {
			return nil, err
		}
		list = append(list, wrong.Manifest)
	}
	return list, nil
}

// A run may be corrected as long as no shard is committed. The corrected run gets its own folder
// inside the folder of the first run. Nothing of the wrong run counts, and a process that still
// computes it cannot interfere. The folder with the highest number is the current run.

// numbered returns the folder of a run that was corrected number-1 times.
func numbered(folder string, number int) string {
	if number <= 1 {
		return folder
	}
	return filepath.Join(folder, fmt.Sprintf("corrected-%d", number))
}

// latest returns the number of the current run in a folder.
func latest(folder string) int {
	number := 1
	for {
		if _, err := os.Lstat(filepath.Join(numbered(folder, number+1), manifestFile)); err != nil {
			return number
		}
		number++
	}
}

// A claim says which attempt computes a shard. The claims on a shard are numbered; the
// highest is current. A process may add the next one if the current attempt has ended or is
// lost, and does so by creating its name: of several that try, one succeeds.

func (r *Run) claimPath(key string, number int) string {
	return r.join(claimsDir, fmt.Sprintf("%s.%04d", key, number))
}

// claims returns the number of the current claim on each shard, by key.
func (r *Run) claims() (map[string]int, error) {
	entries, err := os.ReadDir(r.join(claimsDir))
	if err != nil {
		return nil, storage("read claims", err)
	}
	current := make(map[string]int)
	for _, entry := range entries {
		key, digits, _ := strings.Cut(entry.Name(), ".")
		if number, err := strconv.Atoi(digits); err == nil {
			current[key] = max(current[key], number)
		}
	}
	return current, nil
}

// Result is a finished shard.
type Result struct {
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
	Shard   int    `json:"shard"`
	First   int64  `json:"first"`
	chunk.Counts
	// Output is the size and checksum of the shard's output; of a folder of parts, those of
	// its manifest. Errors is the same for the errors file, Arrays for those of Manifest.Arrays.
	Output chunk.FileSum   `json:"output"`
	Errors chunk.FileSum   `json:"errors,omitzero"`
	Arrays []chunk.FileSum `json:"arrays,omitempty"`
	// Usage is what the kernels have counted, such as requests, in all attempts at the shard.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Skipped is how many input files could not be read to their end.
	Skipped int `json:"skipped_inputs,omitempty"`
	// Rate is in records per second.
	Rate     float64   `json:"records_per_second"`
	Finished time.Time `json:"finished"`
	Who
}

func (r *Run) commitPath(shard int) string { return r.join(commitsDir, key(shard)+".json") }

// result reads the committed result of a shard.
func (r *Run) result(shard int) (Result, error) {
	var result Result
	path := r.commitPath(shard)
	if err := readJSON(path, &result); err != nil {
		return result, storage("read commit", err)
	}
	first, records := r.Range(shard)
	if result.Run != r.ID || result.Shard != shard || result.First != first || result.Counts.Records != records {
		return result, fault.OtherRun.New("%s is not a result of shard %d of this run: it has records %d to %d of run %s",
			path, shard, result.First, result.First+result.Counts.Records, result.Run)
	}
	return result, nil
}

// ResultOutput is where the output of a committed shard is.
func (r *Run) ResultOutput(result Result) string { return r.outputOf(result.Attempt) }

// isCommitted reports whether any attempt has committed the shard.
func (r *Run) isCommitted(shard int) bool {
	_, err := os.Stat(r.commitPath(shard))
	return err == nil
}

// Results returns the results of all shards that have records, in order.
func (r *Run) Results() (results []Result, err error) {
	for i := range r.Shards {
		result, err := r.result(i)
		if err != nil {
			return nil, err
		}
		if result.Counts.Records > 0 {
			results = append(results, result)
		}
	}
	return results, nil
}

// array returns the checksum of an array, none if the shard has no records.
func (r Result) array(i int) (sum chunk.FileSum) {
	if i < len(r.Arrays) {
		sum = r.Arrays[i]
	}
	return sum
}

// attemptDir is the folder of an attempt.
func (r *Run) attemptDir(attempt string) string { return r.join(attemptsDir, filepath.Base(attempt)) }

// outputOf is where an attempt writes its shard.
func (r *Run) outputOf(attempt string) string {
	return joinOutput(r.attemptDir(attempt), r.outputName())
}

// newAttempt creates the folder of an attempt, which has claimed nothing yet. beside is that
// of attemptInfo.
func (r *Run) newAttempt(shard int, key string, beside int, labels map[string]string) (*Attempt, error) {
	a := &Attempt{Shard: shard, run: r, key: key}
	if shard >= 0 {
		a.First, a.Records = r.Range(shard)
	}
	a.info = attemptInfo{Run: r.ID, Attempt: key + "-" + randomName(), Started: time.Now().UTC(), Beside: beside, Who: self(labels)}
	a.dir = r.join(attemptsDir, a.info.Attempt)
	if err := os.Mkdir(a.dir, files.PrivateDirMode); err != nil {
		return nil, storage("create the attempt's folder", err)
	}
	if err := writeJSON(a.join(attemptFile), a.info); err != nil {
		return nil, err
	}
	return a, nil
}

// part returns a shard's part of a limit by its records. All parts add up to the limit.
func (r *Run) part(limit int64, shard int) int64 {
	first, records := r.Range(shard)
	first -= r.First
	return scale(limit, first+records, r.Records, r.Records-1) - scale(limit, first, r.Records, r.Records-1)
}

// Watch returns an observer; 0 is DefaultLostAfter.
func (r *Run) Watch(lostAfter time.Duration) *Watch {
	if lostAfter <= 0 {
		lostAfter = DefaultLostAfter
	}
	return &Watch{run: r, lostAfter: lostAfter, attempts: make(map[string]*observed), results: make(map[int]Result)}
}
