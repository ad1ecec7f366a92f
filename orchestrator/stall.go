package orchestrator

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// stallAfter is how long the kernel may work on its first batch before the user, who
// sees only zeros, gets a notice. The kernel may be loading or compiling; but a program
// that buffers its responses until its input ends would use up all of --open-timeout.
const stallAfter = 30 * time.Second

// stall is whether the kernel has ever responded.
type stall struct {
	answered atomic.Bool // a batch has finished, successfully or not
	reported atomic.Bool // that none finished for a long time
}

// watchFirst notifies the user, once per job, if there is no response for a long time.
// The returned function ends the watch.
func (s *slotRun) watchFirst() (stop func()) {
	if s.job.stall.answered.Load() {
		return func() {}
	}
	worker := s.worker
	timer := time.AfterFunc(s.job.config.stallAfter, func() {
		if s.job.stall.answered.Load() || s.idles() || s.job.stall.reported.Swap(true) {
			return
		}
		if s.job.fleet.fetches(s.slot) {
			s.job.emit(Notice{Text: fmt.Sprintf("%s: the files of the first records have not arrived after %s", s.slot.Name, s.job.config.stallAfter)})
			return
		}
		s.job.emit(Notice{Text: fmt.Sprintf("%s: no response to the first batch after %s; %s", s.slot.Name, s.job.config.stallAfter, worker.lastWords())})
	})
	return func() { timer.Stop() }
}

// lastWords returns the last line that the worker or its kernel logged, or where to
// find the log.
func (w *workerProcess) lastWords() string {
	words := lastLines(w.log, w.logStart)
	if words == "" {
		return "the kernel's output is in " + w.log
	}
	return "its log ends with: " + words[strings.LastIndexByte(words, '\n')+1:]
}
