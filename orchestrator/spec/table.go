package spec

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/parquet"
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
				return nil, fault.BadColumn.New("column %q: %w", c.Name, err).Set("columns")
			}
		}
		switch {
		case c.Name == "":
			return nil, fault.BadColumn.New("a column has no name").Set("columns")
		case c.Name == parquet.ErrorColumn:
			return nil, fault.BadColumn.New("%s is the last column of every table; it need not be named", parquet.ErrorColumn).Set("columns")
		case slices.ContainsFunc(list, func(o parquet.Column) bool { return o.Name == c.Name }):
			return nil, fault.BadColumn.New("column %q is named twice", c.Name).Set("columns")
		}
		list = append(list, c)
	}
	return list, nil
}
