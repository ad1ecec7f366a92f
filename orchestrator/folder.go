package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// folder is the job folder, where a job keeps its own files: next to the output, or in
// the user's state folder if the output is a stream.
//
//	out.jsonl.gpurun/   for -o out.jsonl; out.gpurun/ for -o out/; see folderPath
//	  job.json          what the job is: fingerprint, cut
//	  journal           which parts of it are done; removed when all are
//	  lock              held while the job runs
//	  parts/            finished segments that are not in the output yet
//	  spool/            decoded or streamed records that are not computed yet
//	  input.chunks      how such an input was split, with checksums
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
	Version     int         `json:"version"`
	Created     time.Time   `json:"created"`
	Input       string      `json:"input"`
	Output      string      `json:"output"`
	Errors      string      `json:"errors,omitempty"`
	Kernel      string      `json:"kernel"`
	Fingerprint fingerprint `json:"fingerprint"`
	Cut         input.Cut   `json:"cut"`
	// Layout is that of the columns, once it is known.
	Layout *columns.Layout `json:"layout,omitempty"`
	// Declared are the columns of a table whose types the input declares, for a retry that
	// decides the layout: it reads other files.
	Declared []parquet.Column `json:"declared,omitempty"`
	// Launch is how to resolve the names in the fingerprint.
	Launch launch `json:"launch"`
	// Sum is the checksum of everything else: a damaged cut would change the output.
	Sum string `json:"sum"`
}

// launch holds what a retry needs, besides the fingerprint, to start the job's kernel
// from any folder and to give it the same records. All paths are absolute.
type launch struct {
	// Dir is the working folder of kernels.
	Dir string `json:"dir,omitempty"`
	// Python is the interpreter, if the kernel has one.
	Python string `json:"python,omitempty"`
	// PluginPath is $GPURUN_PLUGIN_PATH.
	PluginPath string `json:"plugin_path,omitempty"`
	// FetchPrivate is Config.Fetch.AllowPrivate. A resumed job may have another.
	FetchPrivate bool `json:"fetch_private,omitempty"`
	// GPUs, GPUsPerWorker, BatchSize and AutoBatch are where and how the job computed. Results
	// do not depend on it, but another batch may not fit, and another GPU may be taken.
	GPUs          string `json:"gpus,omitempty"`
	GPUsPerWorker int    `json:"gpus_per_worker,omitempty"`
	BatchSize     int    `json:"batch_size,omitempty"`
	AutoBatch     bool   `json:"auto_batch,omitempty"`
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

// openFolder creates and locks the job folder.
func openFolder(ctx context.Context, c Config) (*folder, error) {
	path := folderPath(c)
	if err := checkApart(c, path); err != nil {
		return nil, err
	}
	f := &folder{path: path}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		f.made = true
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, notMade(c, path, err)
	}
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	tell := func(text string) {
		if c.Display.OnEvent != nil {
			c.Display.OnEvent(Notice{Text: text})
		}
	}
	var err error
	if f.lock, err = takeLock(ctx, f.join("lock"), tell); err != nil {
		return nil, err
	}
	if err := f.checkOwner(c); err != nil {
		f.lock.release()
		return nil, err
	}
	if filepath.Dir(path) == stateDir() {
		pruneStreams(stateDir(), time.Now())
	}
	return f, nil
}

// elsewhere suggests another folder if the user named none.
func elsewhere(c Config) (fault.Code, string) {
	if c.Resume.WorkDir == "" && isStream(c.Output.Path) {
		return fault.Setting, "work-dir"
	}
	return "", ""
}

// notMade is the error of a job folder that cannot be created.
func notMade(c Config, path string, err error) error {
	if !errors.Is(err, os.ErrPermission) || isStream(c.Output.Path) {
		return fault.New(kindOfDisk(err), "make job folder: %w", err).WithCode(elsewhere(c))
	}
	if c.Resume.WorkDir != "" {
		return fault.New(fault.Usage, "no permission to write to the work directory %s", filepath.Dir(path)).By(err).Set("work-dir")
	}
	return fault.New(fault.Usage, "no permission to write to the folder %s: choose another one for the output", filepath.Dir(path)).By(err)
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

// stateDir returns where jobs without an output file are kept.
func stateDir() string {
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

// isStream reports whether an output is written as results arrive and has no job folder
// next to it: standard output, a pipe, a device.
func isStream(output string) bool {
	if keepsParts(output) {
		return false
	}
	path := absolute(output)
	if output == "-" || strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/dev/shm/") {
		return true
	}
	info, err := os.Stat(output)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// keepsParts reports whether an output is a folder of parts, judging by its name.
func keepsParts(output string) bool { return strings.HasSuffix(output, "/") }

func (f *folder) join(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// unfinished returns the job that was started here and not finished, or nil.
func (f *folder) unfinished() (*manifest, error) {
	if _, err := os.Stat(f.join(journalFile)); errors.Is(err, os.ErrNotExist) {
		return nil, nil // never started, or finished
	} else if err != nil {
		return nil, fault.New(fault.Storage, "look for an unfinished job: %w; nothing was changed", err)
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
		return nil, fault.New(fault.Conflict, "%s is damaged: %w", path, err).WithCode(fault.Damaged, "")
	}
	if m.Version != manifestVersion {
		return nil, fault.New(fault.Conflict, "%s has version %d, but this gpurun writes version %d",
			path, m.Version, manifestVersion).WithCode(fault.Damaged, "")
	}
	if m.Sum != m.sum() {
		return nil, fault.New(fault.Conflict, "%s is damaged: its checksum is wrong", path).WithCode(fault.Damaged, "")
	}
	return &m, nil
}

// damagedFolder is the fault for a job folder whose contents are not what the job wrote
// there.
func damagedFolder(err error) error {
	return fault.New(fault.Conflict, "the job folder is damaged: %w", err).WithCode(fault.Damaged, "")
}

// begin clears the folder of an earlier job and prepares it for a new one.
func (f *folder) begin() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fault.New(kindOfDisk(err), "read job folder: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(f.join(entry.Name())); err != nil {
			return fault.New(kindOfDisk(err), "clear job folder: %w", err)
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
			return fault.New(kindOfDisk(err), "make job folder: %w", err)
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
		return fault.New(fault.Storage, "write job.json: %w", err)
	}
	return nil
}

// finish removes what only an unfinished job needs. The journal goes last: its absence
// marks the job as finished. With clean, finish then removes the whole folder.
func (f *folder) finish(clean bool) {
	for _, name := range []string{commit.PartsDir, spoolDir, sumsFile, chunksFile, scalingFile, tunedFile, figuresFile, journalFile} {
		crash.Point("clearing")
		_ = os.RemoveAll(f.join(name))
	}
	if clean {
		_ = os.RemoveAll(f.path)
	}
}

// cleans reports whether the folder of a finished job can be removed. If records
// failed, it holds their details, and a retry needs it.
func cleans(c Config, r Report) bool { return c.Resume.Clean && r.Failed == 0 }

// close unlocks the folder, and removes it if it is new and the job never started.
func (f *folder) close(begun bool) {
	f.lock.release()
	if f.made && !begun {
		_ = os.RemoveAll(f.path)
	}
}
