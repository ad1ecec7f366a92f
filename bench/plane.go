package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/process"
)

// plane measures only the path between worker and kernel, with a real kernel process:
// 128 records of 1 KB per batch, four batches in flight. "copied" returns every record
// as new bytes, to use both directions.
func (b *bench) plane() error {
	for _, way := range []struct {
		name   string
		copied bool
		inline bool
	}{
		{"data plane, records only", false, false}, {"data plane, copied results", true, false}, {"… inline", true, true},
	} {
		var rates, cpu []float64
		for range b.rounds {
			rate, seconds, err := b.planeOnce(way.copied, way.inline)
			if err != nil {
				return err
			}
			rates, cpu = append(rates, rate), append(cpu, seconds)
		}
		atLeast, atMost := ">=", "<="
		if way.copied {
			atLeast, atMost = "", "" // for comparison only
		}
		b.add(way.name, "GB/s", rates, atLeast, 2, nil)
		b.add(way.name+", CPU of both sides", "s/GB", cpu, atMost, 0.7, nil)
	}
	return nil
}

func (b *bench) planeOnce(copied, inline bool) (gbPerSecond, cpuPerGB float64, err error) {
	const records, size, window = 128, 1024, 4
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in a worker
	total := b.size(2<<30, 64<<20)
	process, err := process.Start(context.Background(), process.Command{Path: b.sleep, Env: os.Environ(), Dir: b.dir, Inline: inline})
	if err != nil {
		return 0, 0, err
	}
	config := plugins.Config(fmt.Sprintf(`{"copy":%v}`, copied))
	ctx := context.Background()
	if _, err := process.Describe(ctx, config); err != nil {
		return 0, 0, err
	}
	if err := process.Open(ctx, plugins.Device{Name: "CPU 0", Threads: 1}, config); err != nil {
		return 0, 0, err
	}
	text := append(append([]byte(`{"text":"`), bytes.Repeat([]byte("x"), size-11)...), `"}`...)
	// Each batch in flight has its own memory, as in a worker's reader.
	batches := make([]plugins.Batch, window+1)
	for i := range batches {
		buffer := make([]byte, records*size)
		if memory := process.Alloc(len(buffer)); memory != nil {
			buffer = memory.Bytes()
		}
		list := make([][]byte, records)
		for k := range list {
			list[k] = buffer[k*size : (k+1)*size : (k+1)*size]
			copy(list[k], text)
		}
		batches[i] = plugins.NewBatch(list)
	}
	before, started := processorTime(), time.Now()
	var flight []*plugins.Results
	for i := range total / (records * size) {
		if len(flight) == window {
			if err := flight[0].Wait(ctx); err != nil {
				return 0, 0, err
			}
			flight = flight[1:]
		}
		flight = append(flight, plugins.Submit(ctx, process, batches[i%len(batches)]))
	}
	for _, results := range flight {
		if err := results.Wait(ctx); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(started)
	err = process.Close() // its CPU time counts as ours once it has exited
	gigabytes := float64(total) / 1e9
	return gigabytes / took.Seconds(), (processorTime() - before) / gigabytes, err
}

// processorTime returns the CPU time of this process and of its children that have
// exited.
func processorTime() float64 {
	total := 0.0
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if syscall.Getrusage(who, &usage) == nil {
			total += time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
		}
	}
	return total
}
