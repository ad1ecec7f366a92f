package main

import (
	"cmp"
	"errors"

	"github.com/gpurun/gpurun/plugins/kerneltest"
)

// userAdvice is advice for users of the command line, which has flags instead of options.
var userAdvice = map[kerneltest.Advice]string{
	kerneltest.SmallerBatch: "The batch is too large for this device: set Info.BatchSize, and pass --large-batch for the large-batch check.",
	kerneltest.OtherSamples: "The other checks prove little without results: pass a file of records that the kernel can compute: gpurun plugin check KERNEL SAMPLE.jsonl.",
	kerneltest.RecordAlone: "A record's result must depend on that record alone: gpurun may split a batch anywhere, and may recompute a record together with others. " +
		"If the numbers differ only slightly, pass --tolerance; if the dependence is intended, pass --neighbors.",
	kerneltest.NeedsConfig: "If the kernel needs a configuration, pass it with --kernel-config.",
	kerneltest.NeedsDevice: "If the kernel needs another device or configuration, pass --gpus and --kernel-config.",
	kerneltest.MoreTime:    "Find out what the kernel is waiting for; if it only needs more time, pass --timeout.",
}

// pythonAdvice is advice for Python kernels, which do not use the Go API.
var pythonAdvice = map[kerneltest.Advice]string{
	kerneltest.RejectRecord:  "An error fails the whole batch: to reject a single record, return an Exception in place of its result.",
	kerneltest.SmallerBatch:  "The batch is too large for this device: set batch_size in the file, and pass --large-batch for the large-batch check.",
	kerneltest.StartByHand:   "Run the file with python3 to see whether it loads.",
	kerneltest.CloseUnopened: "Planning describes and closes a kernel without opening it: make close() a no-op in that case.",
	kerneltest.CloseQuietly:  "Check what close() raises.",
	kerneltest.CopyToChange:  "The memory of a batch belongs to the caller: copy an array before changing it.",
}

// adviser returns the words for the authors of a kernel.
func adviser(python bool) func(kerneltest.Advice) string {
	return func(a kerneltest.Advice) string {
		own := ""
		if python {
			own = pythonAdvice[a]
		}
		return cmp.Or(own, userAdvice[a], a.String())
	}
}

// advised returns the outcome with its advice in the given words.
func advised(outcome kerneltest.Outcome, words func(kerneltest.Advice) string) kerneltest.Outcome {
	var failure *kerneltest.Failure
	if errors.As(outcome.Err, &failure) {
		outcome.Err = errors.New(failure.Text(words))
	}
	return outcome
}
