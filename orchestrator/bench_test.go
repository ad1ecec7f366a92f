package orchestrator_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// BenchmarkCommit is what the journal's durable points cost: echo, file to file,
// with and without them by turns, on one disk. The metric is the ratio of the
// medians.
//
//	go test -run '^$' -bench Commit -benchtime 5x ./orchestrator
func BenchmarkCommit(b *testing.B) {
	dir := b.TempDir()
	line := fmt.Sprintf("{\"text\":%q}\n", strings.Repeat("lorem ipsum ", 83))
	const records = 600_000
	input := dir + "/in.jsonl"
	file, err := os.Create(input)
	if err != nil {
		b.Fatal(err)
	}
	block := []byte(strings.Repeat(line, 1000))
	for range records / 1000 {
		if _, err := file.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	once := func(change func(orchestrator.Config) orchestrator.Config) time.Duration {
		started := time.Now()
		report, err := orchestrator.Run(context.Background(), change(orchestrator.Config{
			Input: input, Output: dir + "/out.jsonl", Kernel: "echo", GPUs: "cpu:2", Fresh: true, Force: true, Clean: true,
		}))
		if err != nil || report.Succeeded != records {
			b.Fatal(err, report)
		}
		return time.Since(started)
	}
	same := func(c orchestrator.Config) orchestrator.Config { return c }
	once(same) // warm
	var with, without []time.Duration
	b.ResetTimer()
	for b.Loop() {
		with = append(with, once(same))
		without = append(without, once(orchestrator.WithoutDurable))
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(with[len(with)/2].Seconds()/without[len(without)/2].Seconds(), "with/without")
}
