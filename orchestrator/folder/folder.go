// Package folder has what a job keeps in its folder: the lock, the manifest that says what the job
// is, and what an earlier run has left to resume from.
package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// Folder is the job folder, where a job keeps its own files: see spec.Target.Folder.
//
//	out.jsonl.gpurun/   for -o out.jsonl; out.gpurun/ for -o out/
//	  job.json          what the job is: spec, input, kernel, cut
//	  journal           which parts of it are done; removed when all are
//	  lock              held while the job runs
//	  parts/            finished segments that are not in the output yet
//	  spool/            decoded or streamed records that are not computed yet
//	  input.chunks      how an input that is counted as it is read was split, with checksums
//	  output.partial    the output up to the first gap: a file, or a folder of parts
//	  failures.jsonl    details of each failed record
//	  failed.jsonl      the failed records, if the output cannot hold them
//	  report.json
//	  figures           what the kernels have counted: requests, tokens
//	  logs/worker-0.log
type Folder struct {
	Path string
	made bool // by us, just now
	lock *lock
}

// Manifest is job.json.
type Manifest struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Identity
	Cut input.Cut `json:"cut"`
	// Layout is the layout of the columns, once it is known.
	Layout *columns.Layout `json:"layout,omitempty"`
	// Declared are the columns of a table whose types the input declares, for a retry that
	// decides the layout: it reads other files.
	Declared []parquet.Column `json:"declared,omitempty"`
	// Bytes are the names of the values that records have beside their lines. A retry reads them from
	// the input.
	Bytes []string `json:"bytes,omitempty"`
	// Sum is the checksum of everything else: a damaged cut would change the output.
	Sum string `json:"sum"`
}

// sum computes the expected value of Sum.
func (m Manifest) sum() string {
	m.Sum = ""
	data, _ := json.Marshal(m)
	return fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

const (
	manifestVersion = 1
	manifestFile    = "job.json"
	lockFile        = "lock"
)

// Journal, Parts, Spool, Chunks, BatchSizes, Scaling, Figures and Report are the paths of files in the folder.
func (f *Folder) Journal() string    { return f.Join("journal") }
func (f *Folder) Parts() string      { return f.Join(commit.PartsDir) }
func (f *Folder) Spool() string      { return f.Join("spool") }
func (f *Folder) Chunks() string     { return f.Join("input.chunks") }
func (f *Folder) BatchSizes() string { return f.Join("batch-sizes.json") }
func (f *Folder) Scaling() string    { return f.Join("scaling.json") }
func (f *Folder) Figures() string    { return f.Join("figures") }
func (f *Folder) Report() string     { return f.Join("report.json") }

// Open creates and locks the folder of a job.
func Open(ctx context.Context, s *spec.Spec, notice func(string)) (*Folder, error) {
	path := s.Results.Target.Folder(s.Resume.WorkDir)
	if err := s.CheckApart(path); err != nil {
		return nil, err
	}
	_, missing := os.Stat(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, s.NotMade(path, err)
	}
	f, err := Lock(ctx, path, s.Output.Path, notice)
	if err != nil {
		return nil, err
	}
	f.made = errors.Is(missing, os.ErrNotExist)
	if state := spec.StateDir(); filepath.Dir(path) == state {
		pruneStreams(state, time.Now())
	}
	return f, nil
}

// Lock locks the folder of the job with this output.
func Lock(ctx context.Context, path, output string, notice func(string)) (*Folder, error) {
	f := At(path)
	err := files.MakePrivate(path)
	var other *files.NotOwnError
	if errors.As(err, &other) {
		return nil, fault.JobFolderTaken.New("the job folder %s belongs to %s, not to you; remove it, or name another output", path, other.Owner)
	}
	if err != nil {
		return nil, notMade(err)
	}
	if f.lock, err = takeLock(ctx, f.Join(lockFile), notice); err != nil {
		return nil, err
	}
	if err := f.CheckOwner(output); err != nil {
		f.lock.release()
		return nil, err
	}
	return f, nil
}

// notMade is the fault of files in a job folder that cannot be created.
func notMade(err error) error {
	return fault.JobFiles.Of(spec.KindOfDisk(err), "make job folder: %w", err)
}

// At returns a folder that may or may not be there, and is not locked.
func At(path string) *Folder { return &Folder{Path: path} }

// Of returns the job folder next to an output.
func Of(output string) *Folder { return At(spec.At(output).Beside()) }

// Join returns the path of a file in the folder.
func (f *Folder) Join(names ...string) string {
	return filepath.Join(append([]string{f.Path}, names...)...)
}

// Unfinished returns the job that was started here and not finished, or nil.
func (f *Folder) Unfinished() (*Manifest, error) {
	if _, err := os.Stat(f.Journal()); errors.Is(err, os.ErrNotExist) {
		return nil, nil // never started, or finished
	} else if err != nil {
		return nil, fault.JobFiles.New("look for an unfinished job: %w; nothing was changed", err)
	}
	m, err := f.Manifest()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it stopped before its first record
	}
	return m, err
}

// Answers returns how many records have an answer that is logged but not committed: the
// next run does not compute them again.
func (f *Folder) Answers(state commit.State) int64 {
	return int64(len(early.Answered(f.Parts(), func(number int64) bool { return state.Holds(number, 1) })))
}

// State returns what the journal of a job holds, which another process may be writing.
func (f *Folder) State() (commit.State, error) {
	entries, err := commit.ReadJournal(f.Journal())
	if err != nil {
		return commit.State{}, err
	}
	return commit.Replay(entries)
}

// Manifest reads job.json.
func (f *Folder) Manifest() (*Manifest, error) {
	path := f.Join(manifestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, damagedFolder(err)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fault.JobDamaged.New("%s is damaged: %w", path, err)
	}
	if m.Version != manifestVersion {
		return nil, fault.JobDamaged.New("%s has version %d, but this gpurun writes version %d",
			path, m.Version, manifestVersion)
	}
	if m.Sum != m.sum() {
		return nil, fault.JobDamaged.New("%s is damaged: its checksum is wrong", path)
	}
	return &m, nil
}

// damagedFolder is the fault for a job folder whose contents are not what the job wrote
// there.
func damagedFolder(err error) error {
	return fault.JobDamaged.New("the job folder is damaged: %w", err)
}

// functionsDir holds the kernels that the Python package writes before it starts a job.
const functionsDir = "functions"

// Begin clears the folder of an earlier job and prepares it for a new one.
func (f *Folder) Begin() error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return fault.JobFiles.Of(spec.KindOfDisk(err), "read job folder: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name == lockFile || name == functionsDir {
			continue
		}
		if err := os.RemoveAll(f.Join(entry.Name())); err != nil {
			return fault.JobFiles.Of(spec.KindOfDisk(err), "clear job folder: %w", err)
		}
	}
	return f.MakeDirs()
}

// MakeDirs creates the folders that a job writes to.
func (f *Folder) MakeDirs() error {
	for _, name := range []string{commit.PartsDir, "logs"} {
		err := os.MkdirAll(f.Join(name), 0o700)
		if errors.Is(err, unix.ENOTDIR) {
			return damagedFolder(err)
		}
		if err != nil {
			return notMade(err)
		}
	}
	return nil
}

// Save writes job.json, which makes the job resumable.
func (f *Folder) Save(m Manifest) error {
	m.Version = manifestVersion
	m.Sum = m.sum()
	if err := files.WriteJSON(f.Join(manifestFile), m, files.PrivateMode); err != nil {
		return fault.JobFiles.New("write job.json: %w", err)
	}
	return nil
}

// Finish removes what only an unfinished job needs. The journal goes last: its absence
// marks the job as finished. With clean, Finish then removes the whole folder.
func (f *Folder) Finish(clean bool) {
	for _, path := range []string{f.Parts(), f.Spool(), f.Chunks(), f.Scaling(), f.BatchSizes(), f.Figures(), f.Journal()} {
		crash.Point("clearing")
		_ = os.RemoveAll(path)
	}
	if clean {
		_ = os.RemoveAll(f.Path)
	}
}

// Close unlocks the folder, and removes it if it is new and the job never started.
func (f *Folder) Close(begun bool) {
	f.lock.release()
	if f.made && !begun {
		_ = os.RemoveAll(f.Path)
	}
}

// Discard removes what is useless in the folder of a job that cannot resume: copies of its
// input, and results on their way to a stream.
func (f *Folder) Discard() {
	for _, pattern := range []string{f.Parts(), f.Spool(), f.Join("*.partial")} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			_ = os.RemoveAll(path)
		}
	}
}

// keepStreams is how long the folder of a job without an output file is kept: its logs,
// failures and report are all that remains of it. keepKilled is how long the folder of
// a killed job keeps its data, including copies of its input: as long as a job may take
// to lock a folder that it has just created.
const (
	keepStreams = 7 * 24 * time.Hour
	keepKilled  = time.Minute
)

// streamFolder matches the names of such folders: see streamFolderPath.
var streamFolder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{8}-\d{6}-\d+-[A-Z2-7]{6}$`) })

// pruneStreams removes old folders of streams, and the data in those whose jobs were
// killed. Users do not know these folders, so they would pile up.
func pruneStreams(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !files.IsOwn(info) || !streamFolder().MatchString(entry.Name()) {
			continue
		}
		f := At(filepath.Join(dir, entry.Name()))
		age := now.Sub(info.ModTime())
		if age < keepKilled {
			continue
		}
		lock, err := takeLock(context.Background(), f.Join(lockFile), nil)
		if err != nil {
			continue // it is running
		}
		if f.Discard(); age >= keepStreams {
			_ = os.RemoveAll(f.Path)
		} else {
			_ = os.Chtimes(f.Path, now, info.ModTime()) // do not make it look younger
		}
		lock.release()
	}
}

// Writes reports whether the job was started for this output, under any name.
func (m *Manifest) Writes(output string) bool {
	return samePath(m.Spec.Output.Path, output)
}

// samePath reports whether two names lead to the same place, even if there is nothing yet.
func samePath(a, b string) bool {
	return files.RealPath(files.Absolute(a)) == files.RealPath(files.Absolute(b))
}

// MovedWith returns where a file of the job is now that its output is at this path. A file in
// the output's folder, or below, moves with the output. with is false for others, and for a
// file that a job shares with its copy.
func (m *Manifest) MovedWith(output, path string) (now string, with bool) {
	if m.Writes(output) {
		return path, true
	}
	inside, err := filepath.Rel(filepath.Dir(filepath.Clean(m.Spec.Output.Path)), path)
	if err != nil || !filepath.IsLocal(inside) {
		return path, false
	}
	now = filepath.Join(filepath.Dir(files.Absolute(output)), inside)
	if _, err := os.Stat(filepath.Clean(m.Spec.Output.Path) + spec.FolderSuffix); err == nil && samePath(now, path) {
		return path, false
	}
	return now, true
}

// CheckOwner refuses a folder in a work folder that records another output.
func (f *Folder) CheckOwner(output string) error {
	if spec.At(output).Owns(f.Path) {
		return nil
	}
	m, err := f.Manifest()
	if err != nil || m.Writes(output) {
		return nil // an unreadable manifest is reported where it is needed
	}
	return fault.JobFolderTaken.New("the job folder %s belongs to the output %s, not to %s; move it or use another work folder",
		f.Path, m.Spec.Output.Path, output)
}
