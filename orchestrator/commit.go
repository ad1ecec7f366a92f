package orchestrator

import (
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// lastWrite is how long a job that ends at once waits for whoever reads its output.
const lastWrite = time.Second

// lastCommit waits for the committer of a job that ends at once. A file takes what is
// written to it; where nobody reads a stream the committer is left behind.
func (j *job) lastCommit(committed <-chan error) error {
	if !isStream(j.config.Output) && (j.config.Errors == "" || !isStream(j.config.Errors)) {
		return <-committed
	}
	select {
	case err := <-committed:
		return err
	case <-time.After(lastWrite):
		j.unread = true
		return fault.New(fault.Canceled, "stopped on request, while nobody read the output")
	}
}

// commitInterval is how often the output is looked at when no segment comes.
const commitInterval = time.Second

// commitAll takes segments as they come.
func (j *job) commitAll() error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case segment, ok := <-j.segments:
			if !ok { // while the workers end
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

// noteAppended lets others know what stands in the output, which is the committer's.
func (j *job) noteAppended() {
	appended, _ := j.output.Appended()
	j.mu.Lock()
	j.appended = appended
	j.mu.Unlock()
}

// commitSegment takes a segment, if the input that it was read from is still the job's.
func (j *job) commitSegment(segment chunk.Segment) error {
	if err := j.checkInput(segment.Start.Offset, segment.Next.Offset); err != nil {
		return err
	}
	if err := j.noteSums(); err != nil {
		return err
	}
	err := j.output.Commit(segment)
	j.noteAppended()
	return err
}

// checkInput checks the bytes from..to of the input, if it is not as it was.
func (j *job) checkInput(from, to int64) error {
	return j.input.check(from, to, func(text string) { j.emit(Notice{Text: text}) })
}
