package main

import "strings"

// kerneltest addresses its advice to authors of Go tests. The command line has flags
// instead of options, and Python kernels do not use the Go API.

var userWords = []string{
	"set Options.Tolerance", "give --tolerance",
	"set Options.Neighbours", "give --neighbours",
	"set Options.Timeout", "give --timeout",
	"and Options.LargeBatch for", "and give --large-batch for",
	"give records that the kernel can compute in Options.Records", "give a file of records that the kernel can compute: gpurun plugin check KERNEL SAMPLE.jsonl",
	"give one in Options.Config", "give it with --kernel-config",
	"give them in Options.Device and Options.Config", "give them with --gpus and --kernel-config",
}

var pythonWords = append([]string{
	"for a record that the kernel cannot use, call results.Fail(i, message) and return nil",
	"for a record that process cannot use, put an Exception where its result would be",
	"set Info.BatchSize", "set batch_size in the file",
	"load models and import frameworks in Open", "load models in setup",
	"Run the program by hand to see whether it starts", "Run the file with python3 to see whether it loads",
	"let Close do nothing then", "let close() do nothing then",
	"Return an error only for what a user must know; it stands in the log", "See what close() raises",
	"copy a record before changing it (bytes.Clone)", "copy an array before changing it",
}, userWords...)

func adviseUser(advice string) string { return strings.NewReplacer(userWords...).Replace(advice) }

func advisePython(advice string) string { return strings.NewReplacer(pythonWords...).Replace(advice) }
