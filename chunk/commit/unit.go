package commit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/fault"
)

// An encoded output consists of units: runs of whole lines, each encoded as a frame of its
// own. A unit ends with the first line that brings it to Options.UnitBytes, and where a
// planned chunk ends if it then has a quarter of that. Where units end therefore depends on
// the plan and on the results, never on checkpoints, kills, or who computed what when.
const leastShare = 4

// heldUnit is the size up to which an encoded unit is held in memory until everything before
// it is written. A longer one, which is a single line, is encoded when its turn comes. It is a
// variable so that tests can lower it.
var heldUnit int64 = 64 << 20

// Unit is an encoded run of lines in the output.
type Unit struct {
	// Raw is the number of bytes before encoding.
	Raw int64 `json:"raw"`
	// Bytes and CRC sum the encoded unit.
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc"`
	// Sides are the bytes of its rows in the arrays beside the output.
	Sides []chunk.FileSum `json:"sides,omitempty"`
	// Meta describes a row group of a table, for the end of its file.
	Meta []byte `json:"meta,omitempty"`
}

// isTail reports whether the unit has no rows: it ends a file of a table.
func (u Unit) isTail() bool { return u.Raw == 0 }

func (u Unit) sum() chunk.FileSum { return chunk.FileSum{Bytes: u.Bytes, CRC: u.CRC} }

// piece is a range of a part that holds results.
type piece struct {
	path           string
	offset, length int64
}

// pendingUnit is a unit that is being encoded.
type pendingUnit struct {
	of     *units
	pieces []piece
	lines  int64      // bytes of pieces
	raw    int64      // bytes of lines and values
	rows   []rowRange // the rows of pieces
	count  int        // how many they are
	ahead  bool       // it is encoded ahead

	// Valid when done is closed.
	done chan struct{}
	data [][]byte      // the encoded unit; nil if it is encoded when its turn comes
	sum  chunk.FileSum // of data
	read partSums      // of what was read
	err  error
	meta []byte // describes a row group
}

// partSums are the checksums of parts' results.
type partSums struct{ lines, index, values chunk.FileSum }

// sumsOf returns those that the writer of a part has computed.
func sumsOf(s chunk.Segment) (sums partSums) {
	sums.lines = s.Files[chunk.Results]
	if s.Columns != nil {
		sums.index, sums.values = s.Columns.Index, s.Columns.Values
	}
	return sums
}

func (s partSums) join(next partSums) partSums {
	return partSums{s.lines.Join(next.lines), s.index.Join(next.index), s.values.Join(next.values)}
}

// add appends a range of a part.
func (u *pendingUnit) add(p piece) {
	u.lines += p.length
	u.raw += p.length
	u.pieces = append(u.pieces, p)
}

// hold encodes the unit in memory.
func (u *pendingUnit) hold() {
	if !u.of.table {
		var data bytes.Buffer
		u.err = u.encode(&data)
		u.data = [][]byte{data.Bytes()}
		return
	}
	u.data, u.meta, u.err = u.encodeTable()
	for _, page := range u.data {
		_, _ = u.sum.Write(page)
	}
	u.err = encodeFault(u.err)
}

// encode writes the unit to w and sums both sides.
func (u *pendingUnit) encode(w io.Writer) (err error) {
	in := &piecesReader{pieces: u.pieces}
	defer in.close()
	if u.of.codec == nil {
		u.sum, err = copySummed(w, in, u.lines)
		u.read.lines = u.sum
	} else {
		err = u.of.codec.Encode(io.MultiWriter(w, &u.sum), io.TeeReader(in, &u.read.lines), u.lines)
	}
	return encodeFault(err)
}

func encodeFault(err error) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	return fault.WriteFailed.New("encode output: %w", err)
}

// copySummed copies size bytes of a part to w and sums them.
func copySummed(w io.Writer, in *piecesReader, size int64) (sum chunk.FileSum, err error) {
	buffer := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	for sum.Bytes < size {
		data := buffer[:min(size-sum.Bytes, copyBytes)]
		if _, err := io.ReadFull(in, data); err != nil {
			return sum, partFault(err)
		}
		_, _ = sum.Write(data)
		if _, err := w.Write(data); err != nil {
			return sum, fault.WriteFailed.New("write output: %w", err)
		}
	}
	return sum, nil
}

// partFault classifies an error of reading a part.
func partFault(err error) error {
	if fault.As(err) != nil {
		return err
	}
	return fault.PartDamaged.New("read part: %w", err)
}

// copyBytes is how much of a part is copied at a time: as much as stays in the processor's
// cache while it is summed and written.
const copyBytes = 256 << 10

// copyBuffers hold what is copied.
var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// read returns the bytes of the range.
func (p piece) read() ([]byte, error) {
	in := &piecesReader{pieces: []piece{p}}
	defer in.close()
	return io.ReadAll(in)
}

// piecesReader reads ranges of files, one after another. It ends at the first file that is missing
// or too short.
type piecesReader struct {
	pieces []piece
	file   *os.File
	unread int64 // of file
}

func (r *piecesReader) Read(p []byte) (int, error) {
	for r.unread == 0 {
		r.close()
		if len(r.pieces) == 0 {
			return 0, io.EOF
		}
		next := r.pieces[0]
		if r.pieces = r.pieces[1:]; next.length == 0 {
			continue
		}
		file, err := os.Open(next.path)
		if err == nil {
			r.file = file
			_, err = file.Seek(next.offset, io.SeekStart)
		}
		if err != nil {
			r.pieces = nil
			return 0, fault.PartDamaged.New("read part: %w", err)
		}
		r.unread = next.length
	}
	n, err := r.file.Read(p[:min(int64(len(p)), r.unread)])
	r.unread -= int64(n)
	switch {
	case err == io.EOF && r.unread > 0:
		return n, fault.PartDamaged.New("read part: %s is shorter than it was when it was written", r.file.Name())
	case err != nil && err != io.EOF:
		return n, fault.PartDamaged.New("read part: %w", err)
	}
	return n, nil
}

func (r *piecesReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// lineEnd returns the offset after the first newline at or after an offset of a file of
// whole lines.
func lineEnd(path string, at, size int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, fault.PartDamaged.New("read part: %w", err)
	}
	defer file.Close()
	buffer := make([]byte, 64<<10)
	for at < size {
		n, err := file.ReadAt(buffer[:min(int64(len(buffer)), size-at)], at)
		if i := bytes.IndexByte(buffer[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}
		at += int64(n)
		if err != nil {
			return 0, fault.PartDamaged.New("read part: %w", err)
		}
	}
	return size, nil
}

// check returns the fault of a part that is not what its writer wrote. A resume finds
// out which, and computes its records again.
func (s partSums) check(want partSums) error {
	for _, pair := range [][2]chunk.FileSum{{s.lines, want.lines}, {s.index, want.index}, {s.values, want.values}} {
		if got, want := pair[0], pair[1]; got != want {
			return fault.PartDamaged.New("encode output: a part was damaged before it was encoded: its %d bytes have checksum %08x instead of %08x",
				want.Bytes, got.CRC, want.CRC).WithDetail(fmt.Sprintf("read %d bytes", got.Bytes))
		}
	}
	return nil
}
