package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// lastWrite is how long an aborted job waits for the reader of its output.
const lastWrite = time.Second

// lastCommit waits for the committer of an aborted job. A write to a file completes; if
// a stream has no reader, the committer is abandoned.
func (j *job) lastCommit(committed <-chan error) error {
	if !isStream(j.config.Output) && (j.config.Errors == "" || !isStream(j.config.Errors)) {
		return <-committed
	}
	select {
	case err := <-committed:
		return err
	case <-time.After(lastWrite):
		j.unread = true
		return fault.New(fault.Canceled, "stopped on request while the output was not being read")
	}
}

// commitInterval is how often the output is checkpointed when no segment arrives.
const commitInterval = time.Second

// commitAll commits segments as they arrive.
func (j *job) commitAll() error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case segment, ok := <-j.segments:
			if !ok { // while the workers shut down
				return j.output.Checkpoint(true)
			}
			err = j.commitSegment(segment)
			j.warnOfDisk()
		case <-ticker.C:
			err = j.output.Checkpoint(false)
		}
		if err != nil {
			return err
		}
	}
}

// commitSegment commits a segment if the input it was read from is unchanged.
func (j *job) commitSegment(segment chunk.Segment) error {
	if err := j.checkInput(segment.Start.Offset, segment.Next.Offset); err != nil {
		return err
	}
	if err := j.noteSums(); err != nil {
		return err
	}
	err := j.output.Commit(segment)
	appended, _ := j.output.Appended() // only the committer touches the output
	j.ledger.setAppended(appended)
	return err
}

// checkInput checks bytes from..to of the input if the file looks modified.
func (j *job) checkInput(from, to int64) error {
	return j.input.check(from, to, func(text string) { j.emit(Notice{Text: text}) })
}
