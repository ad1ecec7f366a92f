package orchestrator_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/orchestrator"
)

// BenchmarkCommit measures the cost of the journal's durable points: echo, file to
// file, alternating with and without them on one disk. The metric is the ratio of the
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
			Input: orchestrator.Input{Path: input}, Output: orchestrator.Output{Path: dir + "/out.jsonl", Force: true}, Kernel: orchestrator.Kernel{Name: "echo"}, Devices: orchestrator.Devices{GPUs: "cpu:2"}, Resume: orchestrator.Resume{Fresh: true, Clean: true},
		}))
		if err != nil || report.Succeeded != records {
			b.Fatal(err, report)
		}
		return time.Since(started)
	}
	same := func(c orchestrator.Config) orchestrator.Config { return c }
	once(same) // warm up
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

// BenchmarkStraggler measures how much later than ideal a job ends when one of its two
// workers is ten times slower than the other. The metric is the median ratio.
//
//	go test -run '^$' -bench Straggler -benchtime 5x ./orchestrator
func BenchmarkStraggler(b *testing.B) {
	for _, chunks := range []int{1, 16} {
		b.Run(fmt.Sprintf("chunks-per-gpu=%d", chunks), func(b *testing.B) {
			dir := b.TempDir()
			var ratios []float64
			for b.Loop() {
				run := straggle(b, dir, chunks)
				ratios = append(ratios, run.took/run.ideal)
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "took/ideal")
		})
	}
}

// BenchmarkResume measures how long an interrupted job takes to compute again: from the
// start of the program, with thousands of segments in its journal, to its first
// finished batch. The metric is the median.
//
//	go test -run '^$' -bench Resume -benchtime 5x ./orchestrator
func BenchmarkResume(b *testing.B) {
	dir := b.TempDir()
	const records = 100_000
	if err := os.WriteFile(dir+"/in.jsonl", []byte(numbered(records)), 0o666); err != nil {
		b.Fatal(err)
	}
	c := orchestrator.Config{
		Input: orchestrator.Input{Path: dir + "/in.jsonl"}, Output: orchestrator.Output{Path: dir + "/out.jsonl"}, Kernel: orchestrator.Kernel{Name: "test-work", Config: []byte(`{"Milliseconds":1}`)}, Devices: orchestrator.Devices{GPUs: "cpu:2"},
		Batching: orchestrator.Batching{Size: 4}, Resume: orchestrator.Resume{Checkpoint: time.Microsecond},
	}
	until := func(event string, passing int) (segments int, took time.Duration) {
		abort := make(chan struct{})
		var once sync.Once
		watched, started := c, time.Now()
		watched.Abort = abort
		watch(&watched, func(name string, passed int, _ orchestrator.Event) {
			if name == "chunk_done" {
				segments = passed
			}
			if name == event && passed >= passing {
				once.Do(func() {
					took = time.Since(started)
					close(abort)
				})
			}
		})
		if _, err := orchestrator.Run(context.Background(), watched); err == nil {
			b.Fatal("it came to its end")
		}
		return segments, took
	}
	segments, _ := until("chunk_done", 2000)
	var all []time.Duration
	for b.Loop() {
		_, took := until("progress", 1)
		all = append(all, took)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2].Seconds(), "s-to-first-batch")
	b.ReportMetric(float64(segments), "segments")
}
