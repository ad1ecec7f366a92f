package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
	"github.com/gpurun/gpurun/orchestrator/spec"
	"github.com/gpurun/gpurun/worker/early"
)

// folder is the job folder, where a job keeps its own files: see spec.Target.Folder.
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
type folder struct {
	path string
	made bool // by us, just now
	lock *folderLock
}

// manifest is job.json.
type manifest struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	identity
	Cut input.Cut `json:"cut"`
	// Layout is that of the columns, once it is known.
	Layout *columns.Layout `json:"layout,omitempty"`
	// Declared are the columns of a table whose types the input declares, for a retry that
	// decides the layout: it reads other files.
	Declared []parquet.Column `json:"declared,omitempty"`
	// Sum is the checksum of everything else: a damaged cut would change the output.
	Sum string `json:"sum"`
}

// sum computes the expected value of Sum.
func (m manifest) sum() string {
	m.Sum = ""
	data, _ := json.Marshal(m)
	return fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

const (
	manifestVersion = 1
	manifestFile    = "job.json"
	journalFile     = "journal"
	reportFile      = "report.json"
)

// openFolder creates and locks the folder of a job.
func openFolder(ctx context.Context, s *spec.Spec, notice func(string)) (*folder, error) {
	path := s.Results.Target.Folder(s.Resume.WorkDir)
	if err := s.CheckApart(path); err != nil {
		return nil, err
	}
	_, missing := os.Stat(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, s.NotMade(path, err)
	}
	f, err := lockFolder(ctx, path, s.Output.Path, notice)
	if err != nil {
		return nil, err
	}
	f.made = errors.Is(missing, os.ErrNotExist)
	if state := spec.StateDir(); filepath.Dir(path) == state {
		pruneStreams(state, time.Now())
	}
	return f, nil
}

// lockFolder locks the folder of the job with this output.
func lockFolder(ctx context.Context, path, output string, notice func(string)) (*folder, error) {
	f := &folder{path: path}
	err := files.MakePrivate(path)
	var other *files.NotOwnError
	if errors.As(err, &other) {
		return nil, fault.JobFolderTaken.New("the job folder %s belongs to %s, not to you; remove it, or name another output", path, other.Owner)
	}
	if err != nil {
		return nil, notMade(err)
	}
	if f.lock, err = takeLock(ctx, f.join("lock"), notice); err != nil {
		return nil, err
	}
	if err := f.checkOwner(output); err != nil {
		f.lock.release()
		return nil, err
	}
	return f, nil
}

// notMade is the fault of files in a job folder that cannot be created.
func notMade(err error) error {
	return fault.JobFiles.Of(spec.KindOfDisk(err), "make job folder: %w", err)
}

// folderOf returns the job folder next to an output.
func folderOf(output string) *folder { return &folder{path: spec.At(output).Beside()} }

func (f *folder) join(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// unfinished returns the job that was started here and not finished, or nil.
func (f *folder) unfinished() (*manifest, error) {
	if _, err := os.Stat(f.join(journalFile)); errors.Is(err, os.ErrNotExist) {
		return nil, nil // never started, or finished
	} else if err != nil {
		return nil, fault.JobFiles.New("look for an unfinished job: %w; nothing was changed", err)
	}
	m, err := readManifest(f.join(manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it stopped before its first record
	}
	return m, err
}

// loggedAnswers returns how many records have an answer that is logged but not committed: the
// next run does not compute them again.
func loggedAnswers(f *folder, state commit.State) int64 {
	return early.Count(f.join(commit.PartsDir), func(number int64) bool { return state.Holds(number, 1) })
}

// readState returns what the journal of a job holds, which another process may be writing.
func (f *folder) readState() (commit.State, error) {
	entries, err := commit.ReadJournal(f.join(journalFile))
	if err != nil {
		return commit.State{}, err
	}
	return commit.Replay(entries)
}

func readManifest(path string) (*manifest, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, damagedFolder(err)
	}
	var m manifest
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

// begin clears the folder of an earlier job and prepares it for a new one.
func (f *folder) begin() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fault.JobFiles.Of(spec.KindOfDisk(err), "read job folder: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(f.join(entry.Name())); err != nil {
			return fault.JobFiles.Of(spec.KindOfDisk(err), "clear job folder: %w", err)
		}
	}
	return f.makeDirs()
}

func (f *folder) makeDirs() error {
	for _, name := range []string{commit.PartsDir, "logs"} {
		err := os.MkdirAll(f.join(name), 0o700)
		if errors.Is(err, unix.ENOTDIR) {
			return damagedFolder(err)
		}
		if err != nil {
			return notMade(err)
		}
	}
	return nil
}

// save writes job.json, which makes the job resumable.
func (f *folder) save(m manifest) error {
	m.Version = manifestVersion
	m.Sum = m.sum()
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := files.WriteDurably(f.join(manifestFile), append(data, '\n'), files.PrivateMode); err != nil {
		return fault.JobFiles.New("write job.json: %w", err)
	}
	return nil
}

// finish removes what only an unfinished job needs. The journal goes last: its absence
// marks the job as finished. With clean, finish then removes the whole folder.
func (f *folder) finish(clean bool) {
	for _, name := range []string{commit.PartsDir, spoolDir, chunksFile, scaler.File, fleet.TunedFile, figuresFile, journalFile} {
		crash.Point("clearing")
		_ = os.RemoveAll(f.join(name))
	}
	if clean {
		_ = os.RemoveAll(f.path)
	}
}

// cleans reports whether the folder of a finished job can be removed. If records
// failed, it holds their details, and a retry needs it.
func (o *order) cleans(r Report) bool { return o.Resume.Clean && r.Failed == 0 }

// close unlocks the folder, and removes it if it is new and the job never started.
func (f *folder) close(begun bool) {
	f.lock.release()
	if f.made && !begun {
		_ = os.RemoveAll(f.path)
	}
}

// discard removes what is useless in the folder of a job that cannot resume: copies of its
// input, and results on their way to a stream.
func (f *folder) discard() {
	for _, name := range []string{commit.PartsDir, spoolDir, "*.partial"} {
		found, _ := filepath.Glob(f.join(name))
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
var streamFolder = regexp.MustCompile(`^\d{8}-\d{6}-\d+-[0-9a-f]{6}$`)

// pruneStreams removes old folders of streams, and the data in those whose jobs were
// killed. Users do not know these folders, so they would pile up.
func pruneStreams(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !files.IsOwn(info) || !streamFolder.MatchString(entry.Name()) {
			continue
		}
		f := &folder{path: filepath.Join(dir, entry.Name())}
		age := now.Sub(info.ModTime())
		if age < keepKilled {
			continue
		}
		lock, err := takeLock(context.Background(), f.join("lock"), nil)
		if err != nil {
			continue // it is running
		}
		if f.discard(); age >= keepStreams {
			_ = os.RemoveAll(f.path)
		} else {
			_ = os.Chtimes(f.path, now, info.ModTime()) // do not make it look younger
		}
		lock.release()
	}
}

// recordsOutput reports whether a folder belongs to the job that writes this output.
func recordsOutput(folder, output string) bool {
	m, err := readManifest(filepath.Join(folder, manifestFile))
	return err == nil && m.writes(output)
}

// writes reports whether the job was started for this output, under any name.
func (m *manifest) writes(output string) bool {
	return samePath(m.Spec.Output.Path, output)
}

// samePath reports whether two names lead to the same place, even if there is nothing yet.
func samePath(a, b string) bool {
	return files.RealPath(files.Absolute(a)) == files.RealPath(files.Absolute(b))
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
	now = filepath.Join(filepath.Dir(files.Absolute(output)), inside)
	if _, err := os.Stat(filepath.Clean(m.Spec.Output.Path) + spec.FolderSuffix); err == nil && samePath(now, path) {
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
