package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/chunk/encode"
	"github.com/gpurun/gpurun/orchestrator"
)

// impliedFormat returns the format of a job that names none. Without a prompt, openai: and
// serve: send lines of batch files, so the results are such lines, too, where the output can
// hold them.
func impliedFormat(c orchestrator.Config) string {
	output, err := encode.Choose(c.Output.Path, c.Output.Format)
	var options struct{ Prompt string }
	_ = json.Unmarshal(c.Kernel.Config, &options) // the kernel reports what is wrong with it
	switch {
	case c.Format != "", options.Prompt != "", !isModelServer(c.Kernel.Name):
		return c.Format
	case err == nil && output.Table || len(c.Output.Columns) > 0 || len(c.Output.Arrays) > 0 || len(c.Output.Keep) > 0 || c.Output.SourceField != "":
		return ""
	case c.Input.Format != "" && c.Input.Format != "jsonl", slices.ContainsFunc(append(c.Input.Paths, c.Input.Path), namesTable):
		return ""
	}
	return orchestrator.OpenAIBatch
}

// joinTypes joins what a comma in a type has separated: dec:decimal(38,10).
func joinTypes(columns []string) (joined []string) {
	for _, text := range columns {
		if n := len(joined); n > 0 && strings.LastIndexByte(joined[n-1], '(') > strings.LastIndexByte(joined[n-1], ')') && strings.Contains(joined[n-1], ":decimal(") {
			joined[n-1] += "," + text
		} else {
			joined = append(joined, text)
		}
	}
	return joined
}

func isModelServer(kernel string) bool {
	return strings.HasPrefix(kernel, "openai:") || strings.HasPrefix(kernel, "serve:")
}

// namesTable reports whether a file's name is that of a table.
func namesTable(path string) bool {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
	return slices.Contains([]string{".csv", ".tsv", ".parquet"}, filepath.Ext(path))
}
