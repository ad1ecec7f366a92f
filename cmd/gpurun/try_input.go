package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/chunk/input/decode"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// sampleRecord is a record of the input that is tried out.
type sampleRecord struct {
	number  int64 // of its line, from 1
	line    []byte
	invalid string // why the line is not a record; empty if it is one
}

// openLines opens a file, or standard input, as JSON lines, whatever its format.
func openLines(ctx context.Context, path string) (lines io.Reader, end func(), err error) {
	options := format.Options{Threads: 1}
	if path == "-" {
		stream := decode.OpenStream(ctx, os.Stdin, "standard input", "", options)
		return stream, func() { _ = stream.Close() }, nil
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, nil, usagef("open input: %w", err)
	}
	info, err := opened.Stat()
	if err != nil {
		opened.Close()
		return nil, nil, usagef("open input: %w", err)
	}
	file := decode.File(opened, path, info.Size())
	kind, err := decode.Detect(file, "", nil)
	if err != nil {
		opened.Close()
		return nil, nil, err
	}
	decoded, err := decode.Open(ctx, file, kind, options)
	if err != nil {
		opened.Close()
		return nil, nil, usagef("open input: %w", err)
	}
	return decoded, func() {
		_ = decoded.Close()
		opened.Close()
	}, nil
}

// firstRecords reads records from a file, or from standard input, as a job would.
func firstRecords(ctx context.Context, path string, skip int64, count int) ([]sampleRecord, error) {
	content, end, err := openLines(ctx, path)
	if err != nil {
		return nil, err
	}
	defer end()
	var records []sampleRecord
	lines := bufio.NewReader(content)
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
