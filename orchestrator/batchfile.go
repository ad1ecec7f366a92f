package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
)

// checkLines refuses settings that do not combine with lines of batch files.
func (c Config) checkLines() error {
	refuse := c.refuseWithFormat
	switch {
	case c.Format == "":
		return nil
	case c.Format != OpenAIBatch:
		return fault.New(fault.Usage, "format %q is not known; use %s", c.Format, OpenAIBatch).Set("format")
	case c.Input.Format != "" && c.Input.Format != "jsonl":
		return refuse("an input format", "input-format")
	case c.Output.SourceField != "":
		return refuse("a source field", "source-field")
	case len(c.Output.Columns) > 0 || len(c.Output.Arrays) > 0 || c.Output.Format == "parquet":
		return refuse("an output of columns", "output-format")
	case len(c.Output.Keep) > 0:
		return refuse("choosing members", "keep")
	}
	return nil
}

func (c Config) refuseWithFormat(what, setting string) error {
	return fault.New(fault.Usage, "the format %s fixes what lines contain: %s does not combine with it", c.Format, what).Set(setting)
}

// checkCustomIDs refuses a batch file in which a custom_id occurs more than once: results
// could not be told apart. An earlier run has checked its input; a stream is gone when it is
// read.
func (p *prepared) checkCustomIDs(ctx context.Context) error {
	if p.config.Format != OpenAIBatch || p.config.framed || p.earlier != nil || p.config.inputs.streams() {
		return nil
	}
	list, err := record.Duplicates(func(yield func(record.Line) bool) error { return p.eachRequest(ctx, yield) })
	if err != nil || len(list) == 0 {
		return err
	}
	first, more := list[0], ""
	if others := len(list) - 1; others > 0 {
		more = fmt.Sprintf(", and %d more occur more than once", others)
	}
	return fault.New(fault.Usage, "custom_id %q occurs in %s and again in %s%s; each must be unique, or results cannot be matched with requests",
		first.ID, p.placeOf(first.First), p.placeOf(first.Second), more)
}

// streamedIDs notes that the requests of a stream are not compared.
func (p *prepared) streamedIDs() []string {
	if p.config.Format != OpenAIBatch || !p.config.inputs.streams() {
		return nil
	}
	return []string{"the input is a stream, so gpurun does not check whether a custom_id occurs more than once"}
}

func (p *prepared) placeOf(l record.Line) string {
	return fmt.Sprintf("line %d of %s", l.Line, p.inputFiles()[l.File].name)
}

// inputFiles returns the files of the input.
func (p *prepared) inputFiles() []inputFile {
	if p.config.inputs != nil {
		return p.config.inputs.files
	}
	return []inputFile{{name: p.config.Input.Path, path: p.config.Input.Path}}
}

// eachRequest passes the lines of the records on that the job computes.
func (p *prepared) eachRequest(ctx context.Context, yield func(record.Line) bool) error {
	r := requests{ctx: ctx, config: p.config, yield: yield}
	for i, file := range p.inputFiles() {
		lines, err := openLines(ctx, file, nil)
		if err != nil {
			return err
		}
		err = r.read(i, lines)
		lines.Close()
		switch {
		case r.ended:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !p.config.Input.SkipBad:
			return fault.New(fault.Usage, "read input %s: %w", file.name, err).WithCode(fault.BadInput, "")
		}
	}
	return nil
}

// openLines opens a file as lines. columns are those of a table to read, nil for all.
func openLines(ctx context.Context, file inputFile, columns []string) (io.ReadCloser, error) {
	if file.info == nil || file.kind.Plain() {
		opened, err := os.Open(file.path)
		if err != nil {
			return nil, fault.New(fault.Usage, "open input: %w", err)
		}
		return opened, nil
	}
	return openDecoded(file, format.Options{Columns: columns, Threads: 1}, new(atomic.Int64))(ctx)
}

// requests reads lines one after the other.
type requests struct {
	ctx    context.Context
	config Config
	yield  func(record.Line) bool
	number int64 // of the next record
	ended  bool
}

// requestBuffer is the size up to which a line is read at once.
const requestBuffer = 1 << 20

func (r *requests) read(file int, from io.Reader) error {
	in := bufio.NewReaderSize(from, requestBuffer)
	for number := int64(1); ; number++ {
		line, err := r.line(in)
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) > 0 {
			r.take(record.Line{File: file, Line: number, Data: line})
		}
		switch {
		case errors.Is(err, io.EOF), r.ended:
			return nil
		case err != nil:
			return err
		case number%1024 == 0 && r.ctx.Err() != nil:
			return r.ctx.Err()
		}
	}
}

// line returns the next line, or as much of it as a record may have.
func (r *requests) line(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if line, err = in.ReadSlice('\n'); int64(len(long)) <= r.config.Input.MaxRecordBytes {
			long = append(long, line...)
		}
	}
	return long, err
}

func (r *requests) take(l record.Line) {
	first, limit := r.config.Input.Offset, r.config.Input.Limit
	if r.number >= first && !r.yield(l) || limit > 0 && r.number+1 >= first+limit {
		r.ended = true
	}
	r.number++
}
