package orchestrator

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// filesWatch checks that the files of an input are still those that the job was planned
// for. It is consulted before a segment goes into the journal. Only the committer uses it.
type filesWatch struct {
	files     []inputFile
	sections  []fileRange   // the files of each section
	source    input.Located // has read them
	resumable bool
	reported  map[string]bool
}

// checkSection checks the file of a section. Those of a bundle were checked after they were
// copied, and a change after that does not matter to a segment.
func (w *filesWatch) checkSection(number int, notice func(text string)) error {
	if r := w.sections[number]; r.to-r.from == 1 {
		return w.check(r.from, func(same bool) (bool, error) { return w.compareRead(number, same) }, notice)
	}
	return nil
}

// checkAll checks every file.
func (w *filesWatch) checkAll(notice func(text string)) error {
	for number, r := range w.sections {
		if err := w.checkSection(number, notice); err != nil {
			return err
		}
		for i := r.from; i < r.to && r.to-r.from > 1; i++ {
			if err := w.check(i, nil, notice); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns a fault if one of several files has changed. A file of which only the times have
// changed counts as unchanged. notice gets a line for the user, once, unless it is certain that
// the content is the same and the modification time is.
func (w *filesWatch) check(number int, compareRead func(same bool) (bool, error), notice func(text string)) error {
	file := &w.files[number]
	if file.path == "" {
		return nil
	}
	now, certain, err := w.compare(*file, compareRead)
	if err != nil || now == nil {
		return err
	}
	switch {
	case !certain:
		w.report(notice, "may have changed", "the input "+file.name+" may have changed while the job was reading it: its times have changed, samples of its content have not")
	case !os.SameFile(now, file.info) || !now.ModTime().Equal(file.info.ModTime()):
		w.report(notice, "touched", "the input "+file.name+" was touched while the job was reading it; its content is unchanged")
	}
	file.info = now
	return nil
}

// report gives the user one line of a kind.
func (w *filesWatch) report(notice func(string), kind, text string) {
	if w.reported == nil {
		w.reported = make(map[string]bool)
	}
	if !w.reported[kind] {
		w.reported[kind] = true
		notice(text)
	}
}

// compare returns a fault if a file has changed, and its state if only its times have. It is
// certain that the content is unchanged if all of it was compared, or if it has checksums of its
// own. compareRead compares what the job has read of a file of plain lines, if it can; same: the
// file is still the same one, not a copy. compare is safe for concurrent use.
func (w *filesWatch) compare(file inputFile, compareRead func(same bool) (bool, error)) (touched os.FileInfo, certain bool, err error) {
	now, err := os.Stat(file.path)
	if err != nil {
		return nil, false, fault.New(fault.Storage, "check input: %w", err)
	}
	if sameFile(now, file.info) {
		return nil, true, nil
	}
	unchanged, certain := now.Size() == file.info.Size() && sameSamples(file), true
	switch {
	case !unchanged || file.info.Size() <= sampledWhole || file.kind.Compressed():
	case file.kind.Plain() && compareRead != nil:
		if unchanged, err = compareRead(os.SameFile(now, file.info)); err != nil {
			return nil, false, fault.New(fault.Storage, "compare input: %w", err)
		}
	default:
		certain = false
	}
	if unchanged {
		return now, certain, nil
	}
	e := fault.New(fault.Conflict, "the input %s changed while the job was reading it: it had %d bytes, now %d", file.name, file.info.Size(), now.Size())
	if !w.resumable {
		return nil, false, fault.New(e.Kind, "%w; run the job again", e)
	}
	return nil, false, e.WithCode(fault.InputChanged, "")
}

// compareRead compares what was read of a section of plain lines. The rest of the same file is
// read as it is now.
func (w *filesWatch) compareRead(number int, same bool) (bool, error) {
	sums, whole := w.source.SumsOf(number)
	if !same && !whole {
		return false, nil
	}
	err := sums.CheckAll(w.files[w.sections[number].from].path)
	if errors.Is(err, input.ErrOtherBytes) {
		return false, nil
	}
	return err == nil, err
}

// checkedLines are the lines of a file that is compared when they have been read.
type checkedLines struct {
	readCloser
	watch *filesWatch
	file  inputFile
	sum   chunk.FileSum
}

func (l *checkedLines) Read(p []byte) (int, error) {
	n, err := l.readCloser.Read(p)
	_, _ = l.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if _, _, changed := l.watch.compare(l.file, l.compareRead); changed != nil {
			return n, changed
		}
	}
	return n, err
}

// compareRead compares all of a file of plain lines.
func (l *checkedLines) compareRead(bool) (bool, error) {
	sum, err := chunk.SumFile(context.Background(), l.file.path)
	return sum == l.sum, err
}

// sameSamples compares samples of the content.
func sameSamples(file inputFile) bool {
	opened, err := os.Open(file.path)
	if err != nil {
		return false
	}
	defer opened.Close()
	sum, err := sampleSum(opened, file.info.Size())
	return err == nil && sum == file.sum
}
