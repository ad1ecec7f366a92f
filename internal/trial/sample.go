package trial

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/input/expand"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/source"
)

// sampleRecord is a record of the input that is tried out.
type sampleRecord struct {
	file    string // "" if there is only one
	number  int64  // of its line, or row, from 1
	rows    bool   // the file is a table
	line    []byte
	invalid string   // why the line is not a record; empty if it is one
	files   [][]byte // that it names, in the order of the settings, and the values of bytes
	blobs   []format.Blob
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

	bytes   []string // columns of bytes
	records []sampleRecord
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
	inputs, err := source.Find(source.Options{Names: s.Inputs, Stdin: os.Stdin, Format: s.Format, Columns: s.Columns, OriginOf: originOf})
	if err == nil {
		err = inputs.Check()
	}
	if err != nil {
		return err
	}
	s.bytes = slices.DeleteFunc(inputs.Bytes(), func(name string) bool {
		return slices.ContainsFunc(s.Fetch.Members, func(m orchestrator.FetchMember) bool { return m.Name == name })
	})
	for _, file := range inputs.Files {
		name := ""
		if len(inputs.Files) > 1 {
			name = file.Name
		}
		if err := s.readFile(ctx, file, name); err != nil {
			return fault.InputUnreadable.Of(fault.Usage, "read input: %w", err)
		}
		if s.Count <= 0 {
			break
		}
	}
	if len(s.records) == 0 {
		return fault.BadSample.New("input %s has no records there", strings.Join(s.Inputs, " "))
	}
	s.fetchFiles(ctx, filepath.Dir(inputs.Files[0].Path))
	return nil
}

// readFile reads records of a file. Values of bytes travel beside the lines.
func (s *Sample) readFile(ctx context.Context, file source.File, name string) error {
	lines, err := file.Lines(ctx, format.Options{Threads: 1, Columns: s.Columns, Bytes: &format.Bytes{Names: s.bytes, Beside: s.bytes}})
	if err != nil {
		return err
	}
	defer lines.Close()
	return source.EachLine(lines, math.MaxInt64, func(line record.Line) bool {
		var blobs []format.Blob
		if lines.Blobs != nil {
			blobs = lines.Blobs()
		}
		if s.Skip--; s.Skip < 0 {
			s.Count--
			s.records = append(s.records, checked(sampleRecord{
				file: name, number: line.Line, rows: lines.CountsRows(), line: bytes.Clone(bytes.TrimSpace(line.Data)), blobs: blobs,
			}))
		}
		return s.Count > 0
	})
}

// Lines returns the records that were read. Unlike in a job, a line that is none is an error.
func (s *Sample) Lines() (lines []string, err error) {
	for _, r := range s.records {
		if r.invalid != "" {
			return nil, fault.BadSample.New("sample %s: %s: %s", strings.Join(s.Inputs, " "), r.place(), r.invalid)
		}
		lines = append(lines, string(r.line))
	}
	return lines, nil
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
