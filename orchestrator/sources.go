package orchestrator

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/folder"
)

// Which files a kernel loads is known only after it has loaded them, in its process:
// workers report them with the results that depend on them. The first report of a file
// is binding from then on, also after a resume: it is in job.json before anything that
// depends on it is committed.

// sources are the files that the kernels of a job load, as its fingerprint lists them.
type sources struct {
	config *order
	folder *folder.Folder
	// programs are the kernel's own files as the manifest has read them; data names the files
	// among them that are not code.
	programs []wire.Program
	data     []string
	columns  *columns.Spec   // nil if there are none
	layout   *columns.Shared // the same

	mu    sync.Mutex      // guards what follows
	job   folder.Manifest // grows as kernels load files
	begun bool            // there are results of this run
}

// A command may write to a file that it names, such as a log. Data that was not there when the
// job began, or that changes before the first results, is such a file: results do not depend
// on it, and a resume does not compare it.

// check records the files that a worker has loaded, and drops those that kernels write. results:
// the worker has results, too. A file that has changed since the job first loaded it stops the
// job, and results that depend on it must not be committed: the caller then gets a fault.
func (s *sources) check(list []wire.Source, results bool) *fault.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.dropWritten(results)
	added, e := s.add(list)
	if e != nil || !dropped && !added {
		return e
	}
	return fault.As(s.folder.Save(s.job))
}

// dropWritten drops data that has changed since the kernel started. results reports that the
// first results are about to be committed: from then on, a change is the user's.
func (s *sources) dropWritten(results bool) (dropped bool) {
	if s.begun {
		return false
	}
	s.begun = results
	for _, was := range s.programs {
		file := s.job.Kernel.File(was.Path)
		if file == nil || !slices.Contains(s.data, was.Path) || filesum.State(was.Path) == was.State {
			continue
		}
		if sum, _ := filesum.Program(was.Path); sum == was.Sum {
			continue
		}
		s.job.Kernel.Drop(was.Path)
		s.config.notice(fmt.Sprintf("%s changed while the kernel started: the kernel seems to write it, so that it is not compared when the job is resumed", was.Path))
		dropped = true
	}
	return dropped
}

// add records the files that a worker reports.
func (s *sources) add(list []wire.Source) (added bool, e *fault.Error) {
	for _, source := range list {
		file := s.job.Kernel.File(source.Path)
		switch {
		case file == nil && source.Sum != "":
			s.job.Kernel.Load(source.Path, source.Sum)
			added = true
		case file == nil || file.Sum == source.Sum:
		case !slices.Contains(s.config.Resume.AcceptChanges, "kernel"):
			return false, s.mixed(source)
		default:
			s.config.emit(Notice{Text: fmt.Sprintf("%s changed while the job was running: the results come from both versions", source.Path), Value: "accept-changes"})
			if source.Sum != "" {
				file.Sum, added = source.Sum, true
			}
		}
	}
	return added, nil
}

// mixed is the fault that stops a job before it mixes results of two versions of a
// file.
func (s *sources) mixed(source wire.Source) *fault.Error {
	how := "has changed since the job loaded it"
	if source.Sum == "" {
		how = "can no longer be read"
	}
	return s.config.Results.Stopped(fault.KernelEdited.New("stopped: %s, which the kernel uses, %s", source.Path, how).By(errAdvised))
}
