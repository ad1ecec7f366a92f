package orchestrator

import (
	"os"

	"github.com/gpurun/gpurun/internal/fault"
)

// filesWatch checks that the files of an input are still those that the job was planned
// for. It is consulted before a segment goes into the journal. Only the committer uses it.
type filesWatch struct {
	files     []inputFile
	resumable bool
	reported  bool
}

// check returns a fault if one of several files has changed. A file that was only touched
// counts as unchanged, and notice gets a line for the user, once.
func (w *filesWatch) check(number int, notice func(text string)) error {
	file := &w.files[number]
	if file.path == "" {
		return nil
	}
	now, err := os.Stat(file.path)
	if err != nil {
		return fault.New(fault.Storage, "check input: %w", err)
	}
	if sameFile(now, file.info) {
		return nil
	}
	if now.Size() != file.info.Size() || !w.sameContent(*file) {
		e := fault.New(fault.Conflict, "the input %s changed while the job was reading it: it had %d bytes, now %d", file.name, file.info.Size(), now.Size())
		if !w.resumable {
			return fault.New(e.Kind, "%w; run the job again", e)
		}
		return e.WithCode(fault.InputChanged, "")
	}
	if !w.reported {
		w.reported = true
		notice("the input " + file.name + " was touched while the job was reading it; its content is unchanged")
	}
	file.info = now
	return nil
}

// sameContent compares samples of the content. Compressed content has checksums of its own,
// but a plain file may have been edited between the samples.
func (w *filesWatch) sameContent(file inputFile) bool {
	if file.kind.Plain() && file.info.Size() > sampledWhole {
		return false
	}
	opened, err := os.Open(file.path)
	if err != nil {
		return false
	}
	defer opened.Close()
	sum, err := sampleSum(opened, file.info.Size())
	return err == nil && sum == file.sum
}

// checkAll checks every file.
func (w *filesWatch) checkAll(notice func(text string)) error {
	for i := range w.files {
		if err := w.check(i, notice); err != nil {
			return err
		}
	}
	return nil
}
