package orchestrator

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/encode/parquet"
	"github.com/gpurun/gpurun/internal/fault"
)

// The columns of an output that is a table get their types from the user, else from the first
// input records and the first results.

// parseColumns parses names of columns with types: "id:int64". A column without a type gets
// its type from what is in it.
func parseColumns(texts []string) (list []parquet.Column, err error) {
	for _, text := range texts {
		c := parquet.Column{Name: text}
		if at := strings.LastIndexByte(text, ':'); at >= 0 {
			c.Name = text[:at]
			if c.Type, c.Length, err = parquet.ParseListType(text[at+1:]); err != nil {
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
	if c.streaming {
		return fault.New(fault.Usage, "a stream of results has no columns to choose").Set("output-format")
	}
	_, err := parseColumns(c.Output.Columns)
	return err
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
	return o.columnNames()
}

// mayKeep reports whether the output may have a member of the records.
func (o Output) mayKeep(name string) bool {
	kept := o.kept()
	return len(kept) == 0 || slices.Contains(kept, name)
}
