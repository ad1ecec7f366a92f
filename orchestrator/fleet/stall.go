package fleet

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gpurun/gpurun/orchestrator/event"
)

// StallAfter is how long the kernel may work on its first batch before the user, who
// sees only zeros, gets a notice. The kernel may be loading or compiling; but a program
// that buffers its responses until its input ends would use up all of --open-timeout.
const StallAfter = 30 * time.Second

// stall is whether the kernel has ever responded.
type stall struct {
	answered atomic.Bool // a batch has finished, successfully or not
	reported atomic.Bool // that none finished for a long time
}

// watchFirst notifies the user, once per job, if there is no response for a long time.
// The returned function ends the watch.
func (s *slotRun) watchFirst() (stop func()) {
	if s.fleet.stall.answered.Load() {
		return func() {}
	}
	worker := s.worker
	timer := time.AfterFunc(s.fleet.StallAfter, func() {
		if s.fleet.stall.answered.Load() || s.idles() || s.fleet.stall.reported.Swap(true) {
			return
		}
		if s.fleet.roster.fetches(s.slot) {
			s.fleet.Emit(event.Notice{Text: fmt.Sprintf("%s: the files of the first records have not arrived after %s", s.slot.Name, s.fleet.StallAfter)})
			return
		}
		s.fleet.Emit(event.Notice{Text: fmt.Sprintf("%s: no response to the first batch after %s; %s", s.slot.Name, s.fleet.StallAfter, worker.LastWords())})
	})
	return func() { timer.Stop() }
}
