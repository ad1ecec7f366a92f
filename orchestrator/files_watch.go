package orchestrator

import (
	"errors"
	"io"
	"os"

	"github.com/gpurun/gpurun/internal/fault"
)

// filesWatch checks that the files of an input are still those that the job was planned
// for. It is consulted before a segment goes into the journal. Only the committer uses it.
type filesWatch struct {
	files     []inputFile
	sections  []fileRange // the files of each section
	resumable bool
	reported  bool
}

// checkSection checks the file of a section. Those of a bundle were checked after they were
// copied, and a change after that does not matter to a segment.
func (w *filesWatch) checkSection(number int, notice func(text string)) error {
	if r := w.sections[number]; r.to-r.from == 1 {
		return w.check(r.from, notice)
	}
	return nil
}

// check returns a fault if one of several files has changed. A file that was only touched
// counts as unchanged, and notice gets a line for the user, once.
func (w *filesWatch) check(number int, notice func(text string)) error {
	file := &w.files[number]
	if file.path == "" {
		return nil
	}
	now, err := w.compare(*file)
	if err != nil || now == nil {
		return err
	}
	if !w.reported {
		w.reported = true
		notice("the input " + file.name + " was touched while the job was reading it; its content is unchanged")
	}
	file.info = now
	return nil
}

// compare returns a fault if a file has changed, and its state if it was only touched. It is
// safe for concurrent use.
func (w *filesWatch) compare(file inputFile) (touched os.FileInfo, err error) {
	now, err := os.Stat(file.path)
	if err != nil {
		return nil, fault.New(fault.Storage, "check input: %w", err)
	}
	if sameFile(now, file.info) {
		return nil, nil
	}
	if now.Size() != file.info.Size() || !w.sameContent(file) {
		e := fault.New(fault.Conflict, "the input %s changed while the job was reading it: it had %d bytes, now %d", file.name, file.info.Size(), now.Size())
		if !w.resumable {
			return nil, fault.New(e.Kind, "%w; run the job again", e)
		}
		return nil, e.WithCode(fault.InputChanged, "")
	}
	return now, nil
}

// checkedLines are the lines of a file that is compared when they have been read.
type checkedLines struct {
	readCloser
	watch *filesWatch
	file  inputFile
}

func (l *checkedLines) Read(p []byte) (int, error) {
	n, err := l.readCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if _, changed := l.watch.compare(l.file); changed != nil {
			return n, changed
		}
	}
	return n, err
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
