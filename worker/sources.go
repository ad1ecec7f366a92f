package worker

import (
	"github.com/gpurun/gpurun/internal/filesum"
	"github.com/gpurun/gpurun/internal/wire"
)

// sources records which of the user's files the kernel's processes have loaded. Files that
// have not been reported to the orchestrator yet go with the next message that carries
// results, so that results and their sources arrive together.
type sources struct {
	programs filesum.Cache
	known    map[wire.Source]bool
	pending  []wire.Source
	warned   map[string]bool
}

func (s *sources) add(source wire.Source) {
	if s.known[source] {
		return
	}
	if s.known == nil {
		s.known = make(map[wire.Source]bool)
	}
	s.known[source] = true
	s.pending = append(s.pending, source)
}

// addPrograms records files in their current state. Those in the same state as known are
// not read again.
func (s *sources) addPrograms(paths []string, known []wire.Program) {
	for _, program := range known {
		s.programs.Add(program.Path, program.State, program.Sum)
	}
	for _, path := range paths {
		s.add(wire.Source{Path: path, Sum: s.programs.Program(path)})
	}
}

// addLoaded records what the running process has loaded. The caller must call it before it
// releases a process.
func (h *kernelHost) addLoaded() {
	if h.process == nil {
		return
	}
	for _, source := range h.process.Report().Sources {
		h.sources.add(wire.Source(source))
	}
}

// newSources returns the sources that have not been reported to the orchestrator yet.
func (h *kernelHost) newSources() []wire.Source {
	h.addLoaded()
	h.sources.addPrograms(h.named.Reread, nil)
	list := h.sources.pending
	h.sources.pending = nil
	return list
}

// newWarnings returns the kernel's warnings that the orchestrator does not have yet.
func (h *kernelHost) newWarnings() (list []string) {
	if h.process == nil {
		return nil
	}
	for _, text := range h.process.Report().Warnings {
		if !h.sources.warned[text] {
			if h.sources.warned == nil {
				h.sources.warned = make(map[string]bool)
			}
			h.sources.warned[text] = true
			list = append(list, text)
		}
	}
	return list
}
