package orchestrator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/chunk/input/format"
	"github.com/gpurun/gpurun/internal/fault"
)

// The columns of an output that is a table get their types from the user, else from the first
// input records and the first results.

const (
	// sampleRecords is how many input records are looked at, and sampleBytes how much of them.
	sampleRecords = 1000
	sampleBytes   = 64 << 20
)

// parseColumns parses names of columns with types: "id:int64". A column without a type gets
// its type from what is in it.
func parseColumns(texts []string) (list []parquet.Column, err error) {
	for _, text := range texts {
		c := parquet.Column{Name: text}
		if at := strings.LastIndexByte(text, ':'); at >= 0 {
			c.Name = text[:at]
			if c.Type, err = parquet.ParseType(text[at+1:]); err != nil {
				return nil, fault.New(fault.Usage, "column %q: %w", c.Name, err).Set("columns")
			}
		}
		switch {
		case c.Name == "":
			return nil, fault.New(fault.Usage, "a column has no name").Set("columns")
		case c.Name == parquet.ErrorColumn:
			return nil, fault.New(fault.Usage, "%s is the last column of every Parquet output; it need not be named", parquet.ErrorColumn).Set("columns")
		case slices.ContainsFunc(list, func(o parquet.Column) bool { return o.Name == c.Name }):
			return nil, fault.New(fault.Usage, "column %q is named twice", c.Name).Set("columns")
		}
		list = append(list, c)
	}
	return list, nil
}

// checkTable refuses what an output that is a table cannot do.
func (c Config) checkTable() error {
	if !c.format().Table {
		if len(c.Output.Columns) > 0 {
			return fault.New(fault.Usage, "only an output that is a table has columns to choose; name it *.parquet").Set("columns")
		}
		return nil
	}
	if c.streaming || c.Output.Path != "" && isStream(c.Output.Path) {
		return fault.New(fault.Usage, "a Parquet file cannot be written to a stream: its end describes the whole file; name an output file, or write JSON lines").Set("output-format")
	}
	_, err := parseColumns(c.Output.Columns)
	return err
}

// sampleInput looks at the first input records. A stream can be read only once, so its
// results are all there is to look at.
func (p *prepared) sampleInput(ctx context.Context) error {
	sample := &p.spec.Table.Sample
	left := sampleRecords
	add := func(r io.Reader) {
		in := bufio.NewReaderSize(io.LimitReader(r, sampleBytes), 1<<20)
		for left > 0 {
			line, err := in.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return // a damaged file is reported when it is read
			}
			if line = bytes.TrimSpace(line); len(line) > 0 {
				left--
				sample.Add(line)
			}
			if err != nil {
				return
			}
		}
	}
	if p.config.inputs == nil {
		file, err := os.Open(p.config.Input.Path)
		if err != nil {
			return fault.New(fault.Usage, "open input: %w", err)
		}
		defer file.Close()
		add(file)
	} else {
		options := format.Options{Columns: p.config.Input.Columns, Types: p.config.Output.Columns, Threads: 1}
		for _, file := range p.config.inputs.files {
			if left == 0 || file.stream != nil {
				break
			}
			if lines, err := openDecoded(file, options, new(atomic.Int64))(ctx); err == nil {
				add(lines)
				lines.Close()
			}
		}
	}
	if keep := p.config.Output.Keep; len(keep) > 0 {
		sample.Columns = slices.DeleteFunc(sample.Columns, func(c parquet.Column) bool { return !slices.Contains(keep, c.Name) })
	}
	return nil
}

// columnNames are the names of an output's columns without their types.
func (o Output) columnNames() (names []string) {
	list, _ := parseColumns(o.Columns)
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// kept returns the only members of the records that the output has, besides the kernel's; nil
// for all.
func (o Output) kept() []string {
	if len(o.Keep) > 0 {
		return o.Keep
	}
	if names := o.columnNames(); len(names) <= maxKept {
		return names
	}
	return nil
}

// maxKept is how many members can be kept.
const maxKept = 64
