package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator/fleet"
	"github.com/gpurun/gpurun/orchestrator/scaling/scaler"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Committed returns how many records of the job with this output are committed, and how many
// further ones have a logged answer, whether it runs, was interrupted or is finished; 0 if
// there is no such job.
func Committed(output string) (records, answers int64) {
	f := folderOf(output)
	state, err := f.readState()
	if err == nil {
		return state.Done(), loggedAnswers(f, state)
	}
	if report, unread := readReport(f.join(reportFile)); errors.Is(err, os.ErrNotExist) && unread == nil && report.Stop == nil {
		return report.In, 0
	}
	return 0, 0
}

// Adopt copies what another job has committed, and the answers that it has logged, to the folder of a job that has not begun, so
// that the latter resumes from there. Both must compute the same records; the outputs and
// errors files differ. The other job may still run, perhaps on another host: its files are
// only read, and everything is verified when the new job starts.
//
// The journal is copied first, because everything else only grows from there on, and it is
// named last: until then the new job has not begun.
func Adopt(from string, config Config) error {
	old, own := folderOf(from), folderOf(config.Output.Path)
	if _, err := os.Stat(own.join(journalFile)); err == nil {
		return fault.JobUnfinished.New("the job %s has begun", config.Output.Path)
	}
	if err := os.MkdirAll(own.join(commit.PartsDir), 0o700); err != nil {
		return notMade(err)
	}
	_, err := os.Stat(old.join(journalFile))
	if errors.Is(err, os.ErrNotExist) {
		err = own.adoptFinished(old, from, config)
	} else {
		err = own.adopt(old, config)
	}
	if err != nil {
		for _, path := range []string{own.path, files.Absolute(config.Output.Path), config.Output.Errors} {
			_ = os.RemoveAll(path)
		}
		return fault.JobFiles.Wrap(err)
	}
	return nil
}

func (f *folder) adopt(old *folder, config Config) error {
	aside := f.join(journalFile + ".adopted")
	if err := copyTree(old.join(journalFile), aside, true); err != nil {
		return err
	}
	m, err := readManifest(old.join(manifestFile))
	if err != nil {
		return err
	}
	if err := f.adoptManifest(m, config); err != nil {
		return err
	}
	entries, err := os.ReadDir(old.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == commit.PartsDir: // copied, not linked: the other job may use these files again
			err = copyTree(old.join(name), f.join(name), false)
		case strings.HasSuffix(name, ".partial"), name == chunksFile, name == scaler.File, name == fleet.TunedFile:
			err = copyTree(old.join(name), f.join(name), true)
		}
		if err != nil {
			return err
		}
	}
	crash.Point("adopted")
	if err := os.Rename(aside, f.join(journalFile)); err != nil {
		return err
	}
	return files.SyncDir(f.path)
}

// adoptManifest makes job.json of another job this one's.
func (f *folder) adoptManifest(m *manifest, config Config) error {
	m.Spec = m.Spec.Writing(config.Output.Path, config.Output.Errors)
	return f.save(*m)
}

// adoptFinished adopts a finished job. Its files no longer change and are linked.
func (f *folder) adoptFinished(old *folder, from string, config Config) error {
	m, err := readManifest(old.join(manifestFile))
	if err != nil {
		return err
	}
	if err := spec.At(from).Link(config.Output.Path); err != nil {
		return err
	}
	report, err := readReport(old.join(reportFile))
	if err != nil {
		return err
	}
	if err := spec.At(config.Output.Path).Compare(context.Background(), report.OutputBytes, report.OutputCRC32C); err != nil {
		return err
	}
	if failed := m.Spec.Output.Errors; failed != "" && config.Output.Errors != "" {
		if err := commit.LinkFile(failed, files.Absolute(config.Output.Errors)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, name := range []string{commit.FailuresFile, reportFile} {
		if err := copyTree(old.join(name), f.join(name), true); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return f.adoptManifest(m, config)
}

// copyTree copies a file, or the files of a folder. What the journal calls durable is synced. A
// segment, which is not, may vanish meanwhile, and is computed again.
func copyTree(from, to string, durable bool) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return copyFile(from, to, info.Mode().Perm(), durable)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		err := copyTree(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name()), durable)
		if err != nil && (durable || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return files.SyncDir(to)
}

func copyFile(from, to string, mode os.FileMode, durable bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil && durable {
		err = out.Sync()
	}
	return cmp.Or(err, out.Close())
}
