package orchestrator

import (
	"fmt"
	"strings"
	"time"
)

// stallAfter is how long the kernel may be at its first batch before the user is told,
// who sees but zeros: it may load and compile for that long, and a program that keeps its
// answers back until its input ends would have the whole of --open-timeout.
const stallAfter = 30 * time.Second

// watchFirst tells the user, once in a job, if nothing is answered for long. It returns
// what ends the watch.
func (s *slotRun) watchFirst() (stop func()) {
	if s.job.answered.Load() {
		return func() {}
	}
	worker := s.worker
	timer := time.AfterFunc(s.job.config.stallAfter, func() {
		if s.job.answered.Load() || s.halting() || s.job.stallReported.Swap(true) {
			return
		}
		s.job.emit(Notice{Text: fmt.Sprintf("%s: no response to the first batch after %s; %s", s.slot.Name, s.job.config.stallAfter, worker.lastWords())})
	})
	return func() { timer.Stop() }
}

// lastWords is the last that the worker or its kernel said, or where it would stand.
func (w *workerProcess) lastWords() string {
	words := lastLines(w.log, w.logStart)
	if words == "" {
		return "the kernel's output is in " + w.log
	}
	return "its log ends with: " + words[strings.LastIndexByte(words, '\n')+1:]
}
