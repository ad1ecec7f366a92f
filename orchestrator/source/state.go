package source

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/filesum"
)

// State is what a fingerprint records of an input file; of a stream, only its name is known.
type State struct {
	Path string `json:"path"`
	Size int64  `json:"size"` // -1 for a stream
	// Modified and Changed are when it was modified, and changed in any way, in nanoseconds since
	// 1970. Sum is the checksum of samples of its content.
	Modified int64     `json:"modified,omitempty"`
	Changed  int64     `json:"changed,omitempty"`
	Sum      chunk.CRC `json:"sum,omitempty"`
	// content is how its bytes differ from what was read; set only in comparisons.
	content string
}

// state returns what the fingerprint records of a file.
func (f File) state() State {
	if f.Path == "" {
		return State{Path: f.Name, Size: -1}
	}
	sum := f.sum
	for _, m := range f.members { // the same file under another name may have others
		sum ^= chunk.Checksum(append([]byte(m.Name+"="), m.Value...))
	}
	s := State{Path: f.Path, Size: f.info.Size(), Modified: f.info.ModTime().UnixNano(), Sum: sum}
	if changed := filesum.ChangeTime(f.info); !changed.IsZero() {
		s.Changed = changed.UnixNano()
	}
	return s
}

// sameTimes reports whether neither time differs. Hosts that share a file may see different
// times of its last change, so a state that is compared between them has none.
func (s State) sameTimes(t State) bool {
	return s.Modified == t.Modified && (s.Changed == t.Changed || s.Changed == 0 || t.Changed == 0)
}

// WithoutChangeTimes returns states to compare between hosts.
func WithoutChangeTimes(states []State) []State {
	for i := range states {
		states[i].Changed = 0
	}
	return states
}

// AsBefore gives files whose content is unchanged their former times, and reports whether there
// are any. sums are the checksums of the only file, if it was counted: they prove what samples
// suggest. A file in which the earlier run found damage, and those behind it, may have been
// replaced; other plain files may have new times. Their checksums are compared when they are read
// again. Without a log of all records that are done, times must be the same.
func AsBefore(now, was []State, sums *input.Sums, log *input.Log, done int64) (as []State, touched bool, err error) {
	if len(now) != len(was) {
		return now, false, nil
	}
	as = make([]State, len(now))
	for i, file := range now {
		as[i] = file
		old := was[i]
		switch {
		case file.Path != old.Path:
		case log.MayChange(i):
			as[i] = old
		case file.Size != old.Size:
		case !file.sameTimes(old) && sums != nil:
			if err := sums.CheckAll(file.Path); errors.Is(err, input.ErrOtherBytes) {
				as[i].content = err.Error()
				continue
			} else if err != nil {
				return now, false, fault.InputUnreadable.New("compare input: %w", err)
			}
			as[i], touched = old, true
		case file.Sum == old.Sum && (file.sameTimes(old) || log.Covers(done)):
			touched = touched || !file.sameTimes(old)
			as[i] = old
		}
	}
	return as, touched, nil
}

// Differences describes how two lists of files differ: by the first difference.
func Differences(was, now []State) []string {
	if len(was) != len(now) {
		return []string{fmt.Sprintf("the number of input files was %d and is now %d", len(was), len(now))}
	}
	for i := range was {
		a, b := was[i], now[i]
		switch {
		case a.Path != b.Path:
			return []string{fmt.Sprintf("input file %d was %s and is now %s", i+1, a.Path, b.Path)}
		case a.Size != b.Size:
			return []string{fmt.Sprintf("the size of the input %s was %d and is now %d", a.Path, a.Size, b.Size)}
		case b.content != "":
			return []string{fmt.Sprintf("the input %s has %s", a.Path, b.content)}
		case a.Sum != b.Sum:
			return []string{fmt.Sprintf("the content of the input %s has changed", a.Path)}
		case !a.sameTimes(b):
			return []string{fmt.Sprintf("the input %s was modified at %s and now at %s", a.Path, when(a), when(b))}
		}
	}
	return nil
}

func when(s State) string { return time.Unix(0, s.Modified).UTC().Format(time.RFC3339Nano) }

// The samples of a file: its first and last bytes, and blocks in between.
const (
	sampleEnds   = 64 << 10
	sampleBlock  = 4 << 10
	sampleBlocks = 16
	// sampledWhole is the size up to which all of a file is read.
	sampledWhole = 2*sampleEnds + sampleBlocks*sampleBlock
)

// sampleSum returns a checksum of samples of a file's content, and of its size.
func sampleSum(file io.ReaderAt, size int64) (chunk.CRC, error) {
	var sum chunk.FileSum
	add := func(from, to int64) error {
		_, err := io.Copy(&sum, io.NewSectionReader(file, from, to-from))
		return err
	}
	if size <= sampledWhole {
		err := add(0, size)
		return chunk.CRC(sum.CRC), err
	}
	if err := add(0, sampleEnds); err != nil {
		return 0, err
	}
	step := (size - 2*sampleEnds) / (sampleBlocks + 1)
	for i := range int64(sampleBlocks) {
		at := sampleEnds + (i+1)*step
		if err := add(at, at+sampleBlock); err != nil {
			return 0, err
		}
	}
	err := add(size-sampleEnds, size)
	return chunk.CRC(sum.CRC), err
}

// sameSamples compares samples of the content.
func (f File) sameSamples() bool {
	same := false
	err := f.open(func(file format.File) error {
		sum, err := sampleSum(file, file.Size())
		same = sum == f.sum
		return err
	})
	return err == nil && same
}

// sameFile reports whether a file on disk is still the one that was planned for. An edit whose
// author has restored the modification time shows in the ctime.
func sameFile(now, was os.FileInfo) bool {
	return os.SameFile(now, was) && now.Size() == was.Size() && now.ModTime().Equal(was.ModTime()) && filesum.ChangeTime(now).Equal(filesum.ChangeTime(was))
}
