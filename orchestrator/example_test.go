package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/orchestrator"
)

// A job reads a file, computes its records with a kernel, and writes the results in the
// order of the input. The main function of such a program first calls worker.Init: workers
// are the program itself, started again. Here that is the test binary.
func ExampleRun() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	in, out := filepath.Join(folder, "in.jsonl"), filepath.Join(folder, "out.jsonl")
	if err := os.WriteFile(in, []byte(`{"id":1}`+"\n"+`{"id":2}`+"\n"+`not JSON`+"\n"), 0o666); err != nil {
		fmt.Println(err)
		return
	}
	report, err := orchestrator.Run(context.Background(), orchestrator.Config{
		Input:   orchestrator.Input{Path: in},
		Output:  orchestrator.Output{Path: out},
		Kernel:  orchestrator.Kernel{Name: "echo"},
		Devices: orchestrator.Devices{GPUs: "cpu:2"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d in = %d succeeded + %d failed + %d dropped + %d pending\n", report.In, report.Succeeded, report.Failed, report.Dropped, report.Pending)
	data, err := os.ReadFile(out)
	if err != nil {
		fmt.Println(err)
		return
	}
	records := strings.Split(string(data), "\n")
	fmt.Println(records[0], records[1])
	for _, failure := range report.Causes {
		fmt.Printf("line %d: %s\n", failure.Line, failure.Kind)
	}
	// Output:
	// 3 in = 2 succeeded + 1 failed + 0 dropped + 0 pending
	// {"id":1} {"id":2}
	// line 3: record
}

// A stream needs no files. Each record has one result, in the order of the records.
func ExampleStream() {
	records := func(yield func(orchestrator.Record, error) bool) {
		for _, record := range []string{`{"id":1}`, `{"id":2}`, `not JSON`} {
			if !yield(orchestrator.Record(record), nil) {
				return // the job has ended
			}
		}
	}
	config := orchestrator.Config{
		Kernel:  orchestrator.Kernel{Name: "echo"},
		Devices: orchestrator.Devices{GPUs: "cpu:2"},
	}
	for result, err := range orchestrator.Stream(context.Background(), config, records) {
		switch {
		case err != nil:
			fmt.Println("the job ended:", err)
		case result.Failure != nil:
			fmt.Printf("record %d failed (%s): %s\n", result.Index, result.Failure.Kind, result.Failed)
		default:
			fmt.Printf("record %d: %s\n", result.Index, result.Records[0])
		}
	}
	// Output:
	// record 0: {"id":1}
	// record 1: {"id":2}
	// record 2 failed (record): not JSON
}

// The kind of an error decides what a program does, its code what it tells the user.
func ExampleFault() {
	_, err := orchestrator.Run(context.Background(), orchestrator.Config{
		Input:  orchestrator.Input{Path: "in.jsonl", Limit: -1},
		Output: orchestrator.Output{Path: "out.jsonl"},
		Kernel: orchestrator.Kernel{Name: "echo"},
	})
	var fault *orchestrator.Fault
	if !errors.As(err, &fault) {
		fmt.Println("no fault:", err)
		return
	}
	switch fault.Kind {
	case orchestrator.KindStorage, orchestrator.KindStopped, orchestrator.KindCanceled:
		fmt.Println("run the job again:", fault)
	default:
		fmt.Printf("%s: %v\n", fault.Kind, fault)
	}
	if fault.Code == "bad-value" {
		fmt.Println("change the setting", fault.Value)
	}
	// Output:
	// usage: limit must be at least 0, not -1
	// change the setting limit
}
