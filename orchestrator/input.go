package orchestrator

import (
	"errors"

	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/fault"
)

// asBefore returns the input as it should be compared with that of an earlier run. An
// input whose times differ is read. If it has the same bytes, it gets its former times,
// and touched is true.
//
// A file of the same size and times counts as unchanged. Without checksums as far as the
// journal reaches, only its size and modification time can be compared.
func (i inputPrint) asBefore(e *earlier) (_ inputPrint, touched bool, err error) {
	was, sums := e.manifest.Fingerprint.Input, e.inputSums()
	if len(i.Files) > 0 {
		i.Files, touched = filesAsBefore(i.Files, was.Files, e.chunkLog)
		return i, touched, nil
	}
	sameChange := was.Changed.IsZero() || i.Changed.Equal(was.Changed)
	switch {
	case i.Path != was.Path || i.Size != was.Size || i.Modified.Equal(was.Modified) && sameChange || sums == nil:
		i.Changed = was.Changed
		return i, false, nil
	}
	switch err := sums.CheckAll(i.Path); {
	case errors.Is(err, input.ErrOtherBytes):
		i.Content = err.Error()
		return i, false, nil
	case err != nil:
		return i, false, fault.New(fault.Storage, "compare input: %w", err)
	}
	i.Modified, i.Changed = was.Modified, was.Changed
	return i, true, nil
}

// touchedNote explains why a job is resumed although its input's times changed.
const touchedNote = "the input was touched after the job started; its content is unchanged"

// sumsFile holds the checksums of an input that is cut while it is read.
const sumsFile = "input.sums"

// inputSums returns checksums of everything the earlier run has computed, or nil if
// there are none.
func (e *earlier) inputSums() *input.Sums {
	if e.manifest.Cut.Sums != nil {
		return e.manifest.Cut.Sums
	}
	if len(e.sums.Stretches) == 0 || !e.sums.Cover(e.sums.From, e.state.Reach()) {
		return nil
	}
	return &e.sums
}

// openSums opens the checksum log of an input that needs one.
func (p *prepared) openSums(f *folder) error {
	if p.cut.Bytes == 0 || p.input == nil || !resumable(p.config) {
		return nil
	}
	log, _, err := input.OpenSumsLog(f.join(sumsFile))
	p.sums = log
	return err
}

// noteSums logs the checksums of what is about to be committed.
func (p *prepared) noteSums() error {
	if p.sums == nil {
		return nil
	}
	return p.sums.Append(p.input.sums())
}
