package spec

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/encode"
)

// PlaceColumns makes the columns that the user has named columns of the output if it is a table.
func PlaceColumns(in *Input, out *Output) {
	if out.isTable() {
		in.Columns, out.Columns = nil, in.Columns
	}
}

// RequestFormat returns the format of a job whose kernel sends lines of batch files to a model
// server: the results are such lines, too, where input and output can hold them.
func RequestFormat(in Input, out Output) string {
	isBatch := in.Format == "" || in.Format == "jsonl"
	for _, path := range append(in.Paths, in.Path) {
		path = strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
		isBatch = isBatch && !slices.Contains([]string{".csv", ".tsv", ".parquet", ".arrow", ".arrows", ".feather"}, filepath.Ext(path))
	}
	if !isBatch || out.isTable() || len(out.Columns)+len(out.Arrays)+len(out.Keep) > 0 || out.SourceField != "" {
		return ""
	}
	return OpenAIBatch
}

// isTable reports whether the output's name or format makes it a table.
func (o Output) isTable() bool {
	format, err := encode.Choose(o.Path, o.Format)
	return err == nil && format.Table
}
