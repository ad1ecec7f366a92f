package main

import "strings"

// kerneltest addresses its advice to authors of Go tests. The command line has flags
// instead of options, and Python kernels do not use the Go API.

var userWords = []string{
	"set Options.Tolerance", "pass --tolerance",
	"set Options.Neighbors", "pass --neighbors",
	"set Options.Timeout", "pass --timeout",
	"set Options.LargeBatch", "pass --large-batch",
	"set Options.Records to records that the kernel can compute", "pass a file of records that the kernel can compute: gpurun plugin check KERNEL SAMPLE.jsonl",
	"set Options.Config", "pass it with --kernel-config",
	"set Options.Device and Options.Config", "pass --gpus and --kernel-config",
}

var pythonWords = append([]string{
	"to reject a single record, call results.Fail(i, message) and return nil",
	"to reject a single record, return an Exception in place of its result",
	"set Info.BatchSize", "set batch_size in the file",
	"load models and import frameworks in Open", "load models in setup",
	"Run the program by hand to see whether it starts", "Run the file with python3 to see whether it loads",
	"make Close a no-op in that case", "make close() a no-op in that case",
	"Return an error only if the user must know about it: it is logged", "Check what close() raises",
	"copy a record before changing it (bytes.Clone)", "copy an array before changing it",
}, userWords...)

func adviseUser(advice string) string { return strings.NewReplacer(userWords...).Replace(advice) }

func advisePython(advice string) string { return strings.NewReplacer(pythonWords...).Replace(advice) }
