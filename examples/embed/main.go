// Command embed uses gpurun as a library: it defines its own kernel and runs a job with
// it, from a file to a file, or from its standard input to its standard output.
//
//	go run ./examples/embed in.jsonl out.jsonl
//	echo one two three | go run ./examples/embed
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/worker"
)

// words is a kernel that counts the words in each record's "text".
type words struct{ plugins.Base }

func (words) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	counts := make([]int64, batch.Len())
	for i := range batch.Len() {
		var record struct{ Text *string }
		if err := json.Unmarshal(batch.Record(i), &record); err != nil || record.Text == nil {
			results.Fail(i, "the record has no text")
			continue
		}
		counts[i] = int64(len(strings.Fields(*record.Text)))
	}
	results.Column(plugins.Int64s("words", 0, counts))
	return nil
}

func main() {
	// This must come first: workers and kernels are new processes of this program.
	kernels := builtin.Kernels()
	kernels["words"] = func() plugins.Kernel { return words{} }
	worker.Init(kernels)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch len(os.Args) {
	case 1:
		err = stream(ctx, os.Stdin, os.Stdout)
	case 3:
		err = files(ctx, os.Args[1], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: embed [in.jsonl out.jsonl]")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// files runs a job from a file to a file and prints a summary of the report.
func files(ctx context.Context, in, out string) error {
	report, err := orchestrator.Run(ctx, orchestrator.Config{
		Input:  orchestrator.Input{Path: in},
		Output: orchestrator.Output{Path: out},
		Kernel: orchestrator.Kernel{Name: "words"},
		Display: orchestrator.Display{OnEvent: func(event orchestrator.Event) {
			if done, ok := event.(orchestrator.ChunkDone); ok {
				fmt.Printf("%s: %d of %d records\n", done.Device, done.Job.Records, done.Total)
			}
		}},
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d records, %d failed\n", report.In, report.Failed)
	return nil
}
