// Package shards has what machines that share a job do with the job folders of its ranges: one
// continues from what another has committed, and the merged output gets a folder of its own.
package shards

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
	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/folder"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Committed returns how many records of the job with this output are committed, and how many
// further ones have a logged answer, whether it runs, was interrupted or is finished; 0 if
// there is no such job.
func Committed(output string) (records, answers int64) {
	f := folder.Of(output)
	state, err := f.State()
	if err == nil {
		return state.Done(), f.Answers(state)
	}
	if report, unread := orchestrator.ReadReport(f.Report()); errors.Is(err, os.ErrNotExist) && unread == nil && report.Stop == nil {
		return report.In, 0
	}
	return 0, 0
}

// Spent returns what the kernels of the job with this output have counted, whether it runs, was
// interrupted or is finished; nil if there is no such job.
func Spent(output string) (map[string]int64, error) {
	f := folder.Of(output)
	spent, err := figures.Read(f.Figures())
	if errors.Is(err, os.ErrNotExist) {
		var report orchestrator.Report
		if report, err = orchestrator.ReadReport(f.Report()); err == nil {
			spent = report.Usage
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fault.JobDamaged.New("what the job has spent is no longer known: %w", err)
	}
	return spent, nil
}

// Adopt copies what another job has committed, and the answers that it has logged, to the folder of a job that has not begun, so
// that the latter resumes from there. Both must compute the same records; the outputs and
// errors files differ. The other job may still run, perhaps on another host: its files are
// only read, and everything is verified when the new job starts.
//
// The journal is copied first, because everything else only grows from there on, and it is
// named last: until then the new job has not begun.
func Adopt(from string, config orchestrator.Config) error {
	old, own := folder.Of(from), folder.Of(config.Output.Path)
	if _, err := os.Stat(own.Journal()); err == nil {
		return fault.JobUnfinished.New("the job %s has begun", config.Output.Path)
	}
	if err := own.MakeDirs(); err != nil {
		return err
	}
	_, err := os.Stat(old.Journal())
	if errors.Is(err, os.ErrNotExist) {
		err = adoptFinished(own, old, from, config)
	} else {
		err = adopt(own, old, config)
	}
	if err != nil {
		for _, path := range append([]string{own.Path, files.Absolute(config.Output.Path), config.Output.Errors}, config.Output.ArrayFiles()...) {
			_ = os.RemoveAll(path)
		}
		return fault.JobFiles.Wrap(err)
	}
	return nil
}

func adopt(f, old *folder.Folder, config orchestrator.Config) error {
	aside := f.Journal() + ".adopted"
	if err := copyTree(old.Journal(), aside, true); err != nil {
		return err
	}
	m, err := old.Manifest()
	if err != nil {
		return err
	}
	if err := adoptManifest(f, m, config); err != nil {
		return err
	}
	entries, err := os.ReadDir(old.Path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch from, to := old.Join(entry.Name()), f.Join(entry.Name()); {
		case to == f.Parts(): // copied, not linked: the other job may use these files again
			err = copyTree(from, to, false)
		case strings.HasSuffix(to, ".partial"), to == f.Chunks(), to == f.Scaling(), to == f.BatchSizes():
			err = copyTree(from, to, true)
		}
		if err != nil {
			return err
		}
	}
	crash.Point("adopted")
	if err := os.Rename(aside, f.Journal()); err != nil {
		return err
	}
	return files.SyncDir(f.Path)
}

// adoptManifest makes job.json of another job this one's.
func adoptManifest(f *folder.Folder, m *folder.Manifest, config orchestrator.Config) error {
	m.Spec = m.Spec.Writing(config.Output)
	return f.Save(*m)
}

// adoptFinished adopts a finished job. Its files no longer change and are linked.
func adoptFinished(f, old *folder.Folder, from string, config orchestrator.Config) error {
	m, err := old.Manifest()
	if err != nil {
		return err
	}
	if err := spec.At(from).Link(config.Output.Path); err != nil {
		return err
	}
	report, err := orchestrator.ReadReport(old.Report())
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
	if err := adoptArrays(&report, config); err != nil {
		return err
	}
	for _, name := range []string{commit.FailuresFile, commit.KeptFile} {
		if err := copyTree(old.Join(name), f.Join(name), true); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := report.Save(f.Report()); err != nil {
		return err
	}
	return adoptManifest(f, m, config)
}

// adoptArrays links the arrays that a report lists, verifies them, and lists the links instead.
func adoptArrays(report *orchestrator.Report, config orchestrator.Config) error {
	paths := config.Output.ArrayFiles()
	if len(paths) != len(report.Arrays) {
		return fault.JobDamaged.New("the report lists %d arrays instead of %d", len(report.Arrays), len(paths))
	}
	for i, path := range paths {
		a := &report.Arrays[i]
		if err := commit.LinkFile(a.Path, path); err != nil {
			return err
		}
		if err := spec.At(path).Compare(context.Background(), a.Bytes, &a.CRC32C); err != nil {
			return err
		}
		a.Path = path
	}
	return nil
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
