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
// (a large input is cut while it is read, and earlier versions took none) only its size
// and the time of its last write can be compared.
func (i inputPrint) asBefore(m *manifest) (_ inputPrint, touched bool, err error) {
	was := m.Fingerprint.Input
	sameChange := was.Changed.IsZero() || i.Changed.Equal(was.Changed)
	switch {
	case i.Path != was.Path || i.Size != was.Size || i.Modified.Equal(was.Modified) && sameChange || m.Cut.Sums == nil:
		i.Changed = was.Changed
		return i, false, nil
	}
	switch err := m.Cut.Sums.CheckAll(i.Path); {
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
const touchedNote = "the input was touched since the job was begun; its content is the same"
