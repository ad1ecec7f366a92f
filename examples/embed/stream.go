package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// stream counts the words in each line of in. Records come from this program, and results
// go back to it: there are no files.
func stream(ctx context.Context, in io.Reader, out io.Writer) error {
	config := orchestrator.Config{
		Kernel: orchestrator.Kernel{Name: "words"},
		Input:  orchestrator.Input{Flush: 100 * time.Millisecond}, // how long a partial batch waits
	}
	for result, err := range orchestrator.Stream(ctx, config, lines(in)) {
		if err != nil {
			return err
		}
		if result.Failure != nil {
			fmt.Fprintf(out, "line %d failed: %v\n", result.Index+1, result.Failure)
			continue
		}
		for _, record := range result.Records {
			fmt.Fprintf(out, "%s\n", record)
		}
	}
	return nil
}

// lines yields a record for each line. If reading fails, its last pair is the error.
func lines(in io.Reader) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		scanner := bufio.NewScanner(in)
		for scanner.Scan() {
			record, err := json.Marshal(map[string]string{"text": scanner.Text()})
			if !yield(record, err) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			yield(nil, err)
		}
	}
}
