package worker

import (
	"bytes"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/columns"
	"github.com/gpurun/gpurun/chunk/input"
	"github.com/gpurun/gpurun/chunk/parquet"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins"
)

// encoder turns verdicts into output lines, and into rows if the job has columns. It validates everything that comes from the
// kernel; records that are returned unchanged were validated on input.
type encoder struct {
	keep     *jsonline.Wanted // nil: keep all members
	nanFails bool             // --nan error
	// reprocess: also compute records that arrived with an error mark.
	reprocess bool
	nulls     int64 // numbers that became null because JSON cannot represent them
	keepSet   map[string]bool
	buffer    []byte
	projects  []byte // scratch for --keep
	info      jsonline.Info

	rows rowEncoder
	// beside are the values that the record has beside its line, found by index.
	blobs  *input.Blobs
	beside []input.BlobAt

	// origins adds where a record comes from, unless it is nil.
	origins *record.OriginWriter
	chunk   chunk.Chunk
	plain   []byte // scratch: lines without it
}

func newEncoder(options wire.Records, layout *columns.Layout, c chunk.Chunk) *encoder {
	e := &encoder{nanFails: options.NaNFails, reprocess: options.Reprocess, chunk: c, blobs: input.NewBlobs(c, len(options.Bytes))}
	if len(options.Bytes) > 0 {
		e.rows.bytes, e.rows.beside = options.Bytes, e
	}
	e.rows.use(layout)
	if options.SourceField != "" {
		e.origins = record.NewOriginWriter(options.SourceField)
	}
	if len(options.Keep) > 0 {
		e.keep = jsonline.Want(options.Keep...)
		e.keepSet = make(map[string]bool, len(options.Keep))
		for _, name := range options.Keep {
			e.keepSet[name] = true
		}
	}
	return e
}

// source is a record that was sent to the kernel, and its line in the input.
type source struct {
	record []byte
	line   int64
	index  int64 // its number in the input
}

// encode returns the output lines for a record from result i of results, each with its
// newline. They are valid until the next call. A fault means that the kernel's result is
// unusable for this record.
func (e *encoder) encode(from source, results *plugins.Results, i int) ([]byte, *fault.Error) {
	e.buffer, e.rows.values = e.buffer[:0], e.rows.values[:0]
	if refusal := e.append(from, results, i); refusal != nil {
		return nil, refusal
	}
	return e.buffer, nil
}

// append appends the record's lines to the buffer and their rows to the values, or nothing if
// it returns a fault.
func (e *encoder) append(from source, results *plugins.Results, i int) *fault.Error {
	r := &e.rows
	if !r.decided() {
		return fault.ColumnMismatch.New("the result has none of the columns that the output stores")
	}
	start, values := len(e.buffer), len(r.values)
	if r.table != nil && r.beside != nil {
		var err error
		if e.beside, err = e.blobs.Of(from.index); err != nil {
			return fault.As(err)
		}
	}
	old := e.takeMark(&from)
	var refusal *fault.Error
	switch result := results.At(i); result.Verdict {
	case plugins.Lines:
		for _, line := range result.Lines {
			at := len(e.buffer)
			if refusal = e.line(from.record, line, old); refusal == nil {
				refusal = e.takeOut(at, from.line)
			}
			if refusal != nil {
				break
			}
		}
	case plugins.Columns:
		refusal = e.splice(from, results, i)
	default:
		e.unchanged(from.record)
		refusal = e.takeOut(start, from.line)
	}
	if refusal != nil {
		e.buffer, r.values = e.buffer[:start], r.values[:values]
	}
	return refusal
}

// IsNull, Size and Read return the values beside the record's line; see parquet.Values.
func (e *encoder) IsNull(k int) bool { return e.beside[k].IsNull() }

func (e *encoder) Size(k int, member string) int {
	span, has := e.spanOf(k, member)
	if !has {
		return -1
	}
	return int(span.Length)
}

func (e *encoder) Read(k int, member string, dst []byte) error {
	span, _ := e.spanOf(k, member)
	return e.blobs.ReadSpan(dst, span)
}

// spanOf returns where the bytes or the path of a value are, unless they are null.
func (e *encoder) spanOf(k int, member string) (_ input.Span, has bool) {
	if blob := e.beside[k]; member == parquet.PathMember {
		return blob.Path, blob.Kind.HasPath()
	}
	return e.beside[k].Data, e.beside[k].Kind.HasBytes()
}

// addOrigin adds where a record comes from to its line, which begins at start in the buffer.
func (e *encoder) addOrigin(start int, line int64) *fault.Error {
	e.plain = append(e.plain[:0], e.buffer[start:]...)
	var err error
	if e.buffer, err = e.origins.Append(e.buffer[:start], e.plain, e.chunk.Origin(line)); err != nil {
		return fault.BadMember.Of(fault.Record, "the result is %w: the source of the record cannot be added to it", err)
	}
	return nil
}

// takeMark removes and returns the mark of a record that arrived with one and was computed
// anyway. That mark says nothing about this job.
func (e *encoder) takeMark(from *source) (mark []byte) {
	if !e.reprocess || !bytes.Contains(from.record, markText) {
		return nil
	}
	if mark = plugins.Reported(from.record); mark != nil {
		from.record = unmarked(from.record)
	}
	return mark
}

// unmarked returns a line without its mark.
func unmarked(line []byte) []byte {
	var info jsonline.Info
	for markMember.Scan(line, &info) == nil && info.Object && info.Spans[0].Present() { // a key may occur twice
		line = jsonline.Without(nil, line, info.Spans[0])
	}
	return line
}

// markMember finds only the mark in a line.
var markMember = jsonline.Want(record.ErrorMember)

func (e *encoder) unchanged(record []byte) {
	if e.keep != nil && e.keep.Scan(record, &e.info) == nil && e.info.Object {
		e.buffer = jsonline.Keep(e.buffer, record, &e.info)
	} else {
		e.buffer = append(e.buffer, record...)
	}
	e.buffer = append(e.buffer, '\n')
}

// line appends a line that the kernel returned for the record. old is the record's mark
// from the input.
func (e *encoder) line(record, line, old []byte) *fault.Error {
	if bytes.Equal(line, record) {
		e.unchanged(record)
		return nil
	}
	if err := markMember.Scan(line, &e.info); err != nil {
		return fault.BadResult.New("kernel returned invalid JSON: %w", err)
	}
	if at := e.info.Spans[0]; e.info.Object && isMark(line, at) {
		value := line[at.ValueStart:at.ValueEnd]
		if !bytes.Equal(value, old) {
			return fault.BadResult.New("%s", plugins.ReportedMessage(value))
		}
		return e.line(record, unmarked(line), nil) // the kernel kept the old mark
	}
	if bytes.IndexByte(line, '\n') >= 0 {
		return fault.BadResult.New("kernel returned a line that contains a line break")
	}
	if e.keep != nil && e.info.Object {
		e.kernelMembers(record, line)
	} else {
		e.buffer = append(e.buffer, line...)
	}
	e.buffer = append(e.buffer, '\n')
	return nil
}

// kernelMembers appends the members of a line that the kernel returned in place of a record:
// those to keep, also if the line lacks them, and those that the kernel added or changed.
func (e *encoder) kernelMembers(record, line []byte) {
	returned := make(map[string]bool)
	jsonline.Members(line, func(_ []byte, name string, _ []byte) bool {
		returned[name] = true
		return true
	})
	e.buffer = append(e.buffer, '{')
	first := true
	add := func(key, value []byte) {
		if !first {
			e.buffer = append(e.buffer, ',')
		}
		first = false
		e.buffer = append(append(append(e.buffer, key...), ':'), value...)
	}
	input := make(map[string][]byte)
	jsonline.Members(record, func(key []byte, name string, value []byte) bool {
		if input[name] == nil && e.keepSet[name] && !returned[name] {
			add(key, value)
		}
		input[name] = value
		return true
	})
	jsonline.Members(line, func(key []byte, name string, value []byte) bool {
		old, was := input[name]
		if !was || !bytes.Equal(old, value) || e.keepSet[name] {
			add(key, value)
		}
		return true
	})
	e.buffer = append(e.buffer, '}')
}
