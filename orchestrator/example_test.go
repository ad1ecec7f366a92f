package orchestrator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/orchestrator"
)

// What to do about an error depends on its kind.
func ExampleFault() {
	_, err := orchestrator.Run(context.Background(), orchestrator.Config{Kernel: orchestrator.Kernel{Name: "echo"}, Output: orchestrator.Output{Path: "out.jsonl"}})
	var fault *orchestrator.Fault
	if errors.As(err, &fault) {
		switch fault.Kind {
		case orchestrator.KindStorage, orchestrator.KindStopped, orchestrator.KindCanceled:
			fmt.Println("once more:", err)
		default:
			fmt.Printf("%s: %v\n", fault.Kind, err)
		}
	}
	// Output: usage: no input: name a file of JSON lines, or - for standard input
}
