package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// start reports the phases of the start of a kernel process. A kernel in the worker's own process
// has none.
type start struct {
	send  func(wire.Message) // nil if the phases are not reported
	now   wire.Start
	since time.Time // when its phase began
}

// begin: the process starts, and imports its code first if it is Python.
func (s *start) begin(python bool) {
	s.now = wire.Start{}
	if python {
		s.enter(wire.StartImporting)
	} else {
		s.enter(wire.StartLoading)
	}
}

// imported: the process has imported its code and opens its kernel.
func (s *start) imported() {
	if s.now.Phase == wire.StartImporting {
		s.now.Importing = time.Since(s.since)
		s.enter(wire.StartLoading)
	}
}

// opened: the kernel is open. One that computes records one by one has no first batch.
func (s *start) opened(imports plugins.Imports, batches bool) {
	if s.now.Phase != wire.StartLoading {
		return
	}
	s.now.Loading, s.now.Imports = time.Since(s.since), imports
	if batches {
		s.enter(wire.StartFirstBatch)
	} else {
		s.enter(wire.StartDone)
	}
}

// computed: the kernel has computed a batch, which took some time.
func (s *start) computed(took time.Duration) {
	if s.now.Phase == wire.StartFirstBatch {
		s.now.FirstBatch = took
		s.enter(wire.StartDone)
	}
}

func (s *start) enter(p wire.StartPhase) {
	s.now.Phase, s.since = p, time.Now()
	if s.send != nil {
		s.send(wire.Message{Start: new(s.now)})
	}
}
