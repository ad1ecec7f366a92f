package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// sampleRecord is a record of the input that is tried out.
type sampleRecord struct {
	number  int64 // of its line, from 1
	line    []byte
	invalid string // why the line is not a record; empty if it is one
}

// firstRecords reads records from a file, or from standard input, as a job would.
func firstRecords(path string, skip int64, count int) ([]sampleRecord, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, usagef("open input: %w", err)
		}
		defer file.Close()
	}
	var records []sampleRecord
	lines := bufio.NewReader(file)
	for number := int64(1); len(records) < count; number++ {
		line, err := lines.ReadBytes('\n')
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if skip--; skip < 0 {
				record := sampleRecord{number: number, line: line}
				if !jsonline.Valid(line) {
					record.invalid = "the line is not valid JSON"
				}
				records = append(records, record)
			}
		}
		switch {
		case errors.Is(err, io.EOF) && len(records) == 0:
			return nil, usagef("input %s has no records there", path)
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return nil, usagef("read input: %w", err)
		}
	}
	return records, nil
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
