package orchestrator

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Resumption is what running the same command does after a job has stopped.
type Resumption string

// What the same command does; messages promise nothing else.
const (
	// ResumesAtOnce: it resumes the job.
	ResumesAtOnce Resumption = "at-once"
	// ResumesWhenFixed: it resumes the job once the cause of the stop is fixed: a full
	// disk, a lost device.
	ResumesWhenFixed Resumption = "when-fixed"
	// ResumesAsAdvised: it is refused or stops in the same way; the stop message says
	// what to do.
	ResumesAsAdvised Resumption = "as-advised"
	// ResumesSameStream: it resumes the job if its input, a stream, delivers the same bytes
	// again, once the cause of the stop is fixed.
	ResumesSameStream Resumption = "same-stream"
	// ResumesNever: it starts over. The output is a stream, which cannot be written twice.
	ResumesNever Resumption = "never"
)

// errAdvised marks a fault whose message says what to do before the job can resume.
var errAdvised = errors.New("the message says how to resume")

// resumption returns what the same command does after err stopped the job. A stream must
// arrive again, unless the spool has all of it.
func (j *job) resumption(err error) Resumption {
	is := resumption(j.config.Results, err)
	_, whole := j.source.Total()
	if j.config.inputs.Streams() && (is == ResumesAtOnce || is == ResumesWhenFixed) && !(j.config.Resume.Spool && whole) {
		return ResumesSameStream
	}
	return is
}

// resumption returns what the same command does after err stopped a job.
func resumption(r spec.Results, err error) Resumption {
	switch {
	case err == nil:
		return ""
	case r.Streamed():
		return ResumesNever
	case errors.Is(err, errAdvised):
		return ResumesAsAdvised
	}
	switch fault.KindOf(err) {
	case fault.Canceled, fault.Stopped:
		return ResumesAtOnce
	case fault.Storage, fault.NoDevice, fault.Device, fault.Worker:
		return ResumesWhenFixed
	}
	return ResumesAsAdvised
}

// streamNote warns the user before the work that an interruption loses all of it.
func streamNote(c *order) []string {
	why := c.Results.Unresumable()
	switch {
	case why == "" && c.inputs.Streams() && !c.Resume.Spool:
		return []string{"if this job is interrupted, the same command resumes it only if the same bytes arrive again: its input is a stream"}
	case why == "":
		return []string{} // an empty list in JSON, not null
	}
	return []string{"this job cannot be resumed if it is interrupted: " + why}
}

// discarded is what is useless in the folder of a job that cannot resume: copies of its
// input, and results on their way to a stream.
var discarded = []string{commit.PartsDir, spoolDir, "*.partial"}

// discard removes those files.
func (f *folder) discard() {
	for _, name := range discarded {
		found, _ := filepath.Glob(f.join(name))
		for _, path := range found {
			_ = os.RemoveAll(path)
		}
	}
}
