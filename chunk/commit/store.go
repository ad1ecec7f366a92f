package commit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// StoreOf returns the store for results in a format.
func StoreOf(format encode.Format) chunk.Store {
	if format.Table {
		return chunk.StoreTable
	}
	return chunk.StoreLines
}

// store is a row of the table of stores.
type store struct {
	framed bool
	rows   bool // positions count rows
	// placeholder writes what a failed record leaves in the results.
	placeholder func(Failed, io.Writer) error
	// keeps reports whether a failed record goes to the separate file, and whether it has a
	// placeholder in the results.
	keeps func(errorsApart bool) (apart, placed bool)
}

var stores = map[chunk.Store]store{
	chunk.StoreLines:  {placeholder: Failed.writeLine, keeps: func(errorsApart bool) (bool, bool) { return errorsApart, !errorsApart }},
	chunk.StoreTable:  {placeholder: Failed.writeRow, keeps: func(errorsApart bool) (bool, bool) { return true, !errorsApart }, rows: true},
	chunk.StoreBatch:  {placeholder: Failed.writeResult, keeps: func(bool) (bool, bool) { return true, true }},
	chunk.StoreFrames: {framed: true, keeps: func(bool) (bool, bool) { return false, false }},
}

// Failed is a failed record, whose data this is, in the forms in which outputs hold it.
type Failed struct {
	Data []byte
	record.Failure
}

// Placeholder returns the checksum of what the record has in the results of a store.
func (f Failed) Placeholder(in chunk.Store) (sum chunk.FileSum, err error) {
	err = stores[in].placeholder(f, &sum)
	return sum, err
}

func (f Failed) writeLine(w io.Writer) error {
	if f.Kind != fault.Upstream {
		return record.WriteMarked(w, f.Data, f.Mark())
	}
	if _, err := w.Write(f.Data); err != nil {
		return err
	}
	_, err := w.Write(newline)
	return err
}

func (f Failed) writeRow(w io.Writer) error {
	if f.Kind == fault.Upstream {
		return f.writeLine(w)
	}
	return record.WriteRow(w, f.Data, f.Mark())
}

func (f Failed) writeResult(w io.Writer) error {
	return record.WriteBatchError(w, f.Record, f.Data, f.Mark())
}

// A frame is a line with two sizes, and that many bytes twice: a record's lines and the values
// of their columns, or, if the first size is negative, the failure as JSON and the record.

// frame writes a frame with this first size.
func (p *Part) frame(size int, first, second []byte) error {
	out := &p.files[chunk.Results]
	_, err := fmt.Fprintf(out, "%d %d\n", size, len(second))
	for _, data := range [][]byte{first, second} {
		if err == nil && len(data) > 0 {
			_, err = out.Write(data)
		}
	}
	return err
}

func (p *Part) frameFailed(r input.Record, e fault.Error) error {
	described, err := json.Marshal(struct {
		*fault.Error
		Device string `json:"device,omitempty"`
	}{&e, p.options.Device})
	if err != nil {
		return err
	}
	return p.frame(-len(described), described, r.Data)
}

// NextFrame reads the sizes of the next frame, io.EOF after the last one.
func NextFrame(in *bufio.Reader) (first, second int64, failed bool, err error) {
	line, err := in.ReadSlice('\n')
	if len(line) == 0 {
		return 0, 0, false, err
	}
	one, two, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	first, bad := strconv.ParseInt(one, 10, 64)
	second, worse := strconv.ParseInt(two, 10, 64)
	if cmp.Or(err, bad, worse) != nil || second < 0 {
		return 0, 0, false, fmt.Errorf("%q is not the beginning of a frame", line)
	}
	if first < 0 {
		return -first, second, true, nil
	}
	return first, second, false, nil
}
