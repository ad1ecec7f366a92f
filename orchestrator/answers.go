package orchestrator

import (
	"fmt"
	"sort"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/worker/early"
)

// loggedAnswers returns how many records have an answer that is logged but not committed: the
// next run does not compute them again.
func loggedAnswers(f *folder, state commit.State) int64 {
	return early.Count(f.join(commit.PartsDir), isCommitted(state))
}

// isCommitted returns a function that reports whether a record's result is committed.
func isCommitted(state commit.State) func(number int64) bool {
	segments := state.Segments
	return func(number int64) bool {
		if number < state.Durable.Next {
			return true
		}
		at := sort.Search(len(segments), func(i int) bool { return segments[i].First > number })
		return at > 0 && number < segments[at-1].First+segments[at-1].Tally.Records
	}
}

// logged returns how many answers a job that has ended leaves in the logs.
func (j *job) logged() int64 {
	entries, err := commit.ReadJournal(j.folder.join(journalFile))
	if err != nil {
		return 0
	}
	state, err := commit.Replay(entries)
	if err != nil {
		return 0
	}
	return loggedAnswers(j.folder, state)
}

// forgetAnswers drops the logged answers of a job whose kernel or configuration has changed: only
// committed results may come from the old one.
func (e *earlier) forgetAnswers() {
	if e.answers > 0 {
		e.notes = append(e.notes, fmt.Sprintf("%d answers that were not committed yet come from before the change: their records are computed again", e.answers))
	}
	e.stale, e.answers = true, 0
}
