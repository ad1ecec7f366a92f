package orchestrator

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// changeTime is when anything of a file changed.
func changeTime(info os.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return ctime(stat).UTC()
	}
	return time.Time{}
}

// asBefore is the input as it is to be compared with that of an earlier run. An
// input whose times are others is read: with the bytes that it had it gets the times
// that it had, and touched is true.
//
// A file of the same size and times is taken for the same. Where there are no sums
// (earlier versions took none) only its size and the time of its last write can be
// compared.
func (i inputPrint) asBefore(e *earlier) (_ inputPrint, touched bool, err error) {
	was, sums := e.manifest.Fingerprint.Input, e.inputSums()
	sameChange := was.Changed.IsZero() || i.Changed.Equal(was.Changed)
	switch {
	case i.Path != was.Path || i.Size != was.Size || i.Modified.Equal(was.Modified) && sameChange || sums == nil:
		i.Changed = was.Changed
		return i, false, nil
	}
	switch err := sums.CheckAll(i.Path); {
	case errors.Is(err, chunk.ErrOtherBytes):
		i.Content = err.Error()
		return i, false, nil
	case err != nil:
		return i, false, fault.New(fault.Storage, "compare input: %w", err)
	}
	i.Modified, i.Changed = was.Modified, was.Changed
	return i, true, nil
}

// touchedNote tells the user why a job is resumed although its input's time changed.
const touchedNote = "the input was touched after the job started; its content is unchanged"

// sumsFile is where the sums are of an input that is cut while it is read.
const sumsFile = "input.sums"

// inputSums are checksums of everything that the earlier run has computed, nil if there
// are none.
func (e *earlier) inputSums() *chunk.InputSums {
	if e.manifest.Cut.Sums != nil {
		return e.manifest.Cut.Sums
	}
	if len(e.sums.Stretches) == 0 || !e.sums.Cover(e.sums.From, e.state.Reach()) {
		return nil
	}
	return &e.sums
}

// openSums opens the log of an input's sums, where it needs one.
func (p *prepared) openSums(f *folder) error {
	if p.cut.Bytes == 0 || p.input == nil || !resumable(p.config) {
		return nil
	}
	log, _, err := chunk.OpenSumsLog(f.join(sumsFile))
	p.sums = log
	return err
}

// noteSums writes down the sums of what is about to be committed.
func (p *prepared) noteSums() error {
	if p.sums == nil {
		return nil
	}
	return p.sums.Append(p.input.sums())
}
