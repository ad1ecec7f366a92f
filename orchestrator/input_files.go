package orchestrator

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/internal/filesum"
)

// fileState is what a fingerprint records of one of several inputs. Its JSON form is one
// text, so that 10,000 of them stay readable: size, modification time in nanoseconds since
// 1970, checksum, path; of a stream, only its name is known.
type fileState struct {
	path     string
	size     int64 // -1 for a stream
	modified time.Time
	sum      chunk.CRC
}

// MarshalText writes the text.
func (s fileState) MarshalText() ([]byte, error) {
	if s.size < 0 {
		return fmt.Appendf(nil, "- - - %s", s.path), nil
	}
	return fmt.Appendf(nil, "%d %d %s %s", s.size, s.modified.UnixNano(), s.sum, s.path), nil
}

// UnmarshalText reads it.
func (s *fileState) UnmarshalText(text []byte) error {
	fields := bytes.SplitN(text, []byte(" "), 4)
	if len(fields) != 4 {
		return fmt.Errorf("%q does not describe an input", text)
	}
	*s = fileState{path: string(fields[3]), size: -1}
	if string(fields[0]) == "-" {
		return nil
	}
	size, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return err
	}
	modified, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return err
	}
	s.size, s.modified = size, time.Unix(0, modified).UTC()
	return s.sum.UnmarshalText(fields[2])
}

// state returns what the fingerprint records of a file.
func (f inputFile) state() fileState {
	if f.path == "" {
		return fileState{path: f.name, size: -1}
	}
	sum := f.sum
	for _, m := range f.members { // the same file under another name may have others
		sum ^= chunk.Checksum(append([]byte(m.Name+"="), m.Value...))
	}
	return fileState{path: f.path, size: f.info.Size(), modified: f.info.ModTime().UTC(), sum: sum}
}

// states returns those of all files; none for a single stream, about which nothing is known.
func (i *inputs) states() (states []fileState) {
	if i == nil || len(i.files) == 1 && i.files[0].stream != nil {
		return nil
	}
	for _, file := range i.files {
		states = append(states, file.state())
	}
	return states
}

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

// filesAsBefore gives files whose content is unchanged their former times. A file in which
// the earlier run found damage, and those behind it, may have been replaced: the checksums of
// what was read of them are compared when they are read again.
func filesAsBefore(now, was []fileState, log *input.ChunkLog) (_ []fileState, touched bool) {
	if len(now) != len(was) {
		return now, false
	}
	as := make([]fileState, len(now))
	for i, file := range now {
		as[i] = file
		switch old := was[i]; {
		case file.path != old.path || file == old:
		case log.MayChange(i):
			as[i] = old
		case file.size == old.size && file.sum == old.sum:
			as[i].modified, touched = old.modified, true
		}
	}
	return as, touched
}

// filesDifference describes how two lists of files differ: by the first difference.
func filesDifference(was, now []fileState) []string {
	if len(was) != len(now) {
		return []string{fmt.Sprintf("the number of input files was %d and is now %d", len(was), len(now))}
	}
	for i := range was {
		a, b := was[i], now[i]
		switch {
		case a.path != b.path:
			return []string{fmt.Sprintf("input file %d was %s and is now %s", i+1, a.path, b.path)}
		case a.size != b.size:
			return []string{fmt.Sprintf("the size of the input %s was %d and is now %d", a.path, a.size, b.size)}
		case a != b:
			return []string{fmt.Sprintf("the content of the input %s has changed", a.path)}
		}
	}
	return nil
}

// inputDifferences describes how two inputs differ.
func inputDifferences(was, now inputPrint) []string {
	texts := filesDifference(was.Files, now.Files)
	if len(was.Files) > 0 && len(now.Files) > 0 {
		was.Path, now.Path = "", "" // how the files were named does not matter
	}
	if now.Content != "" {
		texts = append(texts, "the input has "+now.Content)
		now.Content = was.Content
		now.Modified, now.Changed = was.Modified, was.Changed
	}
	was.Files, now.Files = nil, nil
	return append(differences("the input's", was, now), texts...)
}

// sameFile reports whether a file on disk is still the one that was planned for. An edit whose
// author has restored the modification time shows in the ctime.
func sameFile(now, was os.FileInfo) bool {
	return os.SameFile(now, was) && now.Size() == was.Size() && now.ModTime().Equal(was.ModTime()) && filesum.ChangeTime(now).Equal(filesum.ChangeTime(was))
}
