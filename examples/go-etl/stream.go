package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"

	"github.com/gpurun/gpurun/orchestrator"
)

// addUp passes the records of a file through a kernel, without another file: records come
// from this program, and results go back to it.
func addUp(ctx context.Context, path string) error {
	config := orchestrator.Config{
		Kernel:  orchestrator.Kernel{Name: "segment"},
		Devices: orchestrator.Devices{GPUs: "cpu:1"},
	}
	var large, small int64
	for result, err := range orchestrator.Stream(ctx, config, customers(path)) {
		if err != nil {
			return err
		}
		for _, record := range result.Records { // none if it failed: see result.Failure
			var c struct{ Large int64 }
			if err := json.Unmarshal(record, &c); err != nil {
				return err
			}
			large, small = large+c.Large, small+1-c.Large
		}
	}
	fmt.Printf("%d large customers, %d small ones\n", large, small)
	return nil
}

// customers yields the lines of a compressed file. If reading fails, its last pair is the
// error.
func customers(path string) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			yield(nil, err)
			return
		}
		lines := bufio.NewScanner(unzipped)
		for lines.Scan() {
			if !yield(append(orchestrator.Record(nil), lines.Bytes()...), nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}
