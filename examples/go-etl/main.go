// Command go-etl is a program in a module of its own that runs gpurun jobs. It cleans
// customers from any files that gpurun reads, then passes the clean ones through a second
// kernel and adds up their orders.
//
//	go-etl OUT.jsonl.gz IN...
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/worker"
)

func main() {
	// This must come first: workers and kernels are new processes of this program.
	kernels := builtin.Kernels()
	kernels["clean"] = func() plugins.Kernel { return clean{} }
	kernels["segment"] = func() plugins.Kernel { return segment{} }
	worker.Init(kernels)

	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go-etl OUT.jsonl.gz IN...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := cleanFiles(ctx, os.Args[1], os.Args[2:])
	if err == nil {
		err = addUp(ctx, os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// cleanFiles is a job from files to a file. It can be killed at any time: the next call
// resumes it.
func cleanFiles(ctx context.Context, out string, in []string) error {
	report, err := orchestrator.Run(ctx, orchestrator.Config{
		Input:   orchestrator.Input{Paths: in},
		Output:  orchestrator.Output{Path: out},
		Kernel:  orchestrator.Kernel{Name: "clean"},
		Devices: orchestrator.Devices{GPUs: "cpu:2"},
	})
	var fault *orchestrator.Fault
	switch {
	case err == nil:
		fmt.Printf("%d records, %d failed\n", report.In, report.Failed)
	case errors.As(err, &fault) && fault.Kind == orchestrator.KindCanceled:
		return fmt.Errorf("%w; run the same command again to resume", err)
	}
	return err
}
