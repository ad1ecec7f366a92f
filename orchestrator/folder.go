package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
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
func openFolder(ctx context.Context, s *spec.Spec) (*folder, error) {
	path := s.Results.Target.Folder(s.Resume.WorkDir)
	if err := s.CheckApart(path); err != nil {
		return nil, err
	}
	_, missing := os.Stat(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, notMade(s, path, err)
	}
	f, err := lockFolder(ctx, path, s.Output.Path, s.Display.OnEvent)
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
func lockFolder(ctx context.Context, path, output string, emit func(Event)) (*folder, error) {
	f := &folder{path: path}
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	tell := func(text string) {
		if emit != nil {
			emit(Notice{Text: text})
		}
	}
	var err error
	if f.lock, err = takeLock(ctx, f.join("lock"), tell); err != nil {
		return nil, err
	}
	if err := f.checkOwner(output); err != nil {
		f.lock.release()
		return nil, err
	}
	return f, nil
}

// notMade is the error of a job folder that cannot be created.
func notMade(s *spec.Spec, path string, err error) error {
	dir := s.Resume.WorkDir
	switch permission := errors.Is(err, os.ErrPermission); {
	case permission && dir != "":
		return fault.NoPermission.New("no permission to write to the work directory %s", dir).By(err).Set("work-dir")
	case permission && !s.Results.Streamed():
		return fault.NoPermission.New("no permission to write to the folder %s: choose another one for the output", filepath.Dir(path)).By(err)
	}
	e := fault.JobFiles.Of(kindOfDisk(err), "make job folder: %w", err)
	if dir == "" && s.Results.Streamed() {
		return e.Set("work-dir")
	}
	return e
}

// kindOfDisk distinguishes a disk that cannot be written now from a wrong path.
func kindOfDisk(err error) fault.Kind {
	for _, disk := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, disk) {
			return fault.Storage
		}
	}
	return fault.Usage
}

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
		return fault.JobFiles.Of(kindOfDisk(err), "read job folder: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(f.join(entry.Name())); err != nil {
			return fault.JobFiles.Of(kindOfDisk(err), "clear job folder: %w", err)
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
			return fault.JobFiles.Of(kindOfDisk(err), "make job folder: %w", err)
		}
	}
	return nil
}

// save writes job.json, which makes the job resumable.
func (f *folder) save(m manifest) error {
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
func cleans(c *order, r Report) bool { return c.Resume.Clean && r.Failed == 0 }

// close unlocks the folder, and removes it if it is new and the job never started.
func (f *folder) close(begun bool) {
	f.lock.release()
	if f.made && !begun {
		_ = os.RemoveAll(f.path)
	}
}
