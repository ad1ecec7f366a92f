package main

// Limits of a package and of a type. What is over one of them has a reason below.
const (
	maxLines          = 3500
	maxFilesOfPackage = 30
	maxMethods        = 25
	maxFiles          = 4
)

// reasons say why a package or a type is larger than it should be.
var reasons = map[string]string{
	"worker":       "batches and records share the loop and all that is below it",
	"orchestrator": "the life of a job, from its settings to its report",
	"cmd/gpurun":   "one file per command",
	"chunk/commit": "journal, output and resume hold the same invariants",
	"gpu":          "what embedding programs import: inventory, state and monitor of devices",

	"orchestrator.order":       "embeds the Spec, whose methods count",
	"orchestrator.job":         "embeds what was prepared, whose methods count",
	"plugins/process.Process":  "embeds its client, whose methods count",
	"chunk/parquet.Type":       "inference, JSON and Arrow's types have a file each",
	"plugins/kerneltest.trial": "a file per group of checks",
	"plugins.Batch":            "records, members, fetched files and columns have a file each",
	"plugins/openai.settings":  "requests, answers and templates read their own",
}

// reason returns the reason of a package or type for the table, if it is over a limit.
func reason(name string, over bool) string {
	if !over {
		return ""
	}
	if text := reasons[name]; text != "" {
		return ": " + text
	}
	return ": TOO LARGE, without a reason"
}
