package input

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gpurun/gpurun/chunk"
)

// Sums are checksums of an input, computed while its lines are counted: one for each
// of several consecutive stretches, starting at byte From. They distinguish an input that
// was modified from one that was only touched or appended to.
type Sums struct {
	From      int64
	Stretches []chunk.FileSum
}

// The maximum number of stretches for a file and for one chunk of a file that is split by
// bytes. They bound what a job stores; job.json holds the stretches of a file.
const (
	fileStretches  = 1024
	chunkStretches = 64
)

// sumsOf merges blocks into at most the given number of stretches.
func sumsOf(from int64, blocks []scanned, most int) Sums {
	s := Sums{From: from}
	each := max(1, (len(blocks)+most-1)/most)
	for group := range slices.Chunk(blocks, each) {
		var sum chunk.FileSum
		for _, b := range group {
			sum = sum.Join(b.sum)
		}
		s.Stretches = append(s.Stretches, sum)
	}
	return s
}

// join appends the stretches that follow s.
func (s *Sums) join(next Sums) {
	if len(s.Stretches) == 0 {
		s.From = next.From
	}
	s.Stretches = append(s.Stretches[:len(s.Stretches):len(s.Stretches)], next.Stretches...)
}

// end returns the end offset of the last stretch.
func (s Sums) end() int64 {
	end := s.From
	for _, stretch := range s.Stretches {
		end += stretch.Bytes
	}
	return end
}

// Cover reports whether there are sums for the bytes from..to.
func (s Sums) Cover(from, to int64) bool { return from >= s.From && to <= s.end() }

// ErrOtherBytes means that a file does not hold the bytes that were summed.
var ErrOtherBytes = errors.New("different bytes")

// CheckAll reads the file and returns an error that wraps ErrOtherBytes if it does not hold
// the bytes that were summed. Bytes after them do not matter.
func (s Sums) CheckAll(path string) error { return s.Check(path, s.From, s.end()) }

// Check is like CheckAll, but only for the stretches that contain the bytes from..to.
func (s Sums) Check(path string, from, to int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	type piece struct {
		at  int64
		sum chunk.FileSum
	}
	var pieces []piece
	at := s.From
	for _, sum := range s.Stretches {
		if at < to && at+sum.Bytes > from {
			pieces = append(pieces, piece{at, sum})
		}
		at += sum.Bytes
	}
	var next atomic.Int64
	var group errgroup.Group
	for range min(runtime.GOMAXPROCS(0), len(pieces)) {
		group.Go(func() error {
			buffer := make([]byte, readBytes)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return nil
				}
				var sum chunk.FileSum
				p := pieces[i]
				_, err := io.CopyBuffer(&sum, struct{ io.Reader }{io.NewSectionReader(file, p.at, p.sum.Bytes)}, buffer)
				if err != nil {
					return err
				}
				if sum != p.sum {
					next.Store(int64(len(pieces)))
					return fmt.Errorf("%w between offsets %d and %d", ErrOtherBytes, p.at, p.at+p.sum.Bytes)
				}
			}
		})
	}
	return group.Wait()
}

// sumsJSON is the JSON form of sums: all stretches but the last have the same length.
type sumsJSON struct {
	From    int64  `json:"from"`
	Bytes   int64  `json:"bytes"`
	Stretch int64  `json:"stretch"`
	CRC32C  string `json:"crc32c"` // eight hexadecimal digits for each stretch
}

// MarshalJSON encodes sums whose stretches have the same length.
func (s Sums) MarshalJSON() ([]byte, error) {
	w := sumsJSON{From: s.From, Bytes: s.end() - s.From}
	var crcs []byte
	for i, stretch := range s.Stretches {
		if i == 0 {
			w.Stretch = stretch.Bytes
		}
		if stretch.Bytes != w.Stretch && i < len(s.Stretches)-1 {
			return nil, errors.New("input checksums of unequal stretches")
		}
		crcs = fmt.Appendf(crcs, "%08x", stretch.CRC)
	}
	w.CRC32C = string(crcs)
	return json.Marshal(w)
}

// UnmarshalJSON decodes them.
func (s *Sums) UnmarshalJSON(data []byte) error {
	var w sumsJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	crcs, err := hex.DecodeString(w.CRC32C)
	if err != nil {
		return fmt.Errorf("input checksums: %w", err)
	}
	*s = Sums{From: w.From}
	remaining := w.Bytes
	for four := range slices.Chunk(crcs, 4) {
		if len(four) < 4 || remaining <= 0 || w.Stretch <= 0 {
			return errors.New("input checksums do not add up")
		}
		n := min(remaining, w.Stretch)
		s.Stretches = append(s.Stretches, chunk.FileSum{Bytes: n, CRC: uint32(four[0])<<24 | uint32(four[1])<<16 | uint32(four[2])<<8 | uint32(four[3])})
		remaining -= n
	}
	if remaining != 0 {
		return errors.New("input checksums do not add up")
	}
	return nil
}
