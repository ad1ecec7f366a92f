package trial

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/orchestrator"
)

// sampleRecord is a record of the input that is tried out.
type sampleRecord struct {
	file    string // "" if there is only one
	number  int64  // of its line, or row, from 1
	rows    bool   // the file is a table
	line    []byte
	invalid string // why the line is not a record; empty if it is one
}

// place returns where the record is, for people.
func (r sampleRecord) place() string {
	unit := "line"
	if r.rows {
		unit = "row"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %d", r.file, unit, r.number))
}

// Sample is which records of which inputs are tried out.
type Sample struct {
	Inputs  []string // as a job takes them
	Format  string
	Columns []string
	// Skip is how many records are skipped, Count how many are read.
	Skip  int64
	Count int
	Fetch orchestrator.Fetch

	records []sampleRecord
	fetched *fetched // the files of the records; nil for none
}

// originOf tells data from the outputs of jobs, which have their job folder beside them.
func originOf(_, name string) expand.Origin {
	if info, err := os.Stat(filepath.Clean(name) + ".gpurun"); err == nil && info.IsDir() {
		return expand.Output
	}
	return expand.Data
}

// Read reads the sample, as a job would, and the files that its records name.
func (s *Sample) Read(ctx context.Context) error {
	files, _, err := expand.Files(s.Inputs, originOf)
	if err != nil {
		return err
	}
	for _, file := range files {
		more, err := s.recordsOf(ctx, file)
		if err != nil {
			return err
		}
		for _, record := range more {
			if len(files) > 1 {
				record.file = file.Name
			}
			s.records = append(s.records, record)
		}
		s.Count -= len(more)
		if s.Count <= 0 {
			break
		}
	}
	if len(s.records) == 0 {
		return fault.BadSample.New("input %s has no records there", strings.Join(s.Inputs, " "))
	}
	s.fetched = fetchFiles(ctx, s.Fetch, files[0], s.records)
	return nil
}

// openLines opens a file, or a stream, as JSON lines, whatever its format.
func (s *Sample) openLines(ctx context.Context, input expand.File) (lines format.Lines, end func(), err error) {
	options := format.Options{Threads: 1, Columns: s.Columns}
	opened, name := os.Stdin, "standard input"
	if input.Info != nil {
		name = input.Name
		if opened, err = os.Open(input.Name); err != nil {
			return lines, nil, fault.NoSuchInput.New("open input: %w", err)
		}
	}
	if !input.Regular() {
		stream := decode.OpenStream(ctx, opened, name, s.Format, options)
		return stream, func() { _ = stream.Close() }, nil
	}
	file := decode.File(opened, name, input.Info.Size())
	kind, err := decode.Detect(file, s.Format, s.Columns, input.Members...)
	if err != nil {
		opened.Close()
		return lines, nil, err
	}
	decoded, err := decode.Open(ctx, file, kind, options)
	if err != nil {
		opened.Close()
		return lines, nil, fault.NoSuchInput.New("open input: %w", err)
	}
	return decoded, func() {
		_ = decoded.Close()
		opened.Close()
	}, nil
}

// recordsOf reads records of one input. It counts down those to skip.
func (s *Sample) recordsOf(ctx context.Context, input expand.File) (records []sampleRecord, err error) {
	content, end, err := s.openLines(ctx, input)
	if err != nil {
		return nil, err
	}
	defer end()
	lines := bufio.NewReader(content)
	for number := int64(1); len(records) < s.Count; number++ {
		line, err := lines.ReadBytes('\n')
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if s.Skip--; s.Skip < 0 {
				records = append(records, checked(sampleRecord{number: number, rows: content.CountsRows(), line: line}))
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return nil, fault.InputUnreadable.Of(fault.Usage, "read input: %w", err)
		}
	}
	return records, nil
}

// checked returns the line as a record, with the reason if it is not one.
func checked(r sampleRecord) sampleRecord {
	if !jsonline.Valid(r.line) {
		r.invalid = "the line is not valid JSON"
	} else if rejected := record.Rejected(record.MarkOf(r.line)); rejected != nil {
		r.invalid = rejected.Message
	}
	return r
}

// restoreTerminal returns a function that restores the state of the terminal on standard
// input: a debugger that is killed at its prompt leaves it without echo.
func restoreTerminal() func() {
	input := int(os.Stdin.Fd())
	before, err := unix.IoctlGetTermios(input, getTerminal)
	if err != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(input, setTerminal, before) }
}
