package process

import (
	"bytes"
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/protocol"
)

func init() {
	programs["answers unchanged"] = func() { plugins.Serve(&swift{}) }
	programs["answers copies"] = func() { plugins.Serve(&swift{copies: true}) }
}

// swift is a kernel with minimal cost.
type swift struct {
	plugins.Base
	copies bool
	lines  []byte // reused for each batch
}

func (*swift) Describe(context.Context, plugins.Config) (plugins.Info, error) {
	return plugins.Info{InFlight: 3}, nil
}

func (k *swift) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if !k.copies {
		for i := range batch.Len() {
			results.Unchanged(i)
		}
		return nil
	}
	k.lines = k.lines[:0]
	for i := range batch.Len() {
		start := len(k.lines)
		k.lines = append(k.lines, batch.Record(i)...)
		k.lines[start] = '['
		results.Line(i, k.lines[start:])
	}
	return nil
}

// BenchmarkDataPlane moves batches of 128 records of 1 KB through a kernel process, with
// four in flight. It measures from copying the records into memory, in place of reading
// them, until all results are complete. CPU is the time of both sides.
func BenchmarkDataPlane(b *testing.B) {
	for _, answer := range []string{"unchanged", "copies"} {
		for _, way := range []string{"arena", "inline"} {
			b.Run(answer+"/"+way, func(b *testing.B) { benchmarkDataPlane(b, "answers "+answer, way == "inline") })
		}
	}
}

const (
	planeRecords = 128
	planeWindow  = 4
)

func benchmarkDataPlane(b *testing.B, name string, inline bool) {
	command := Command{
		Path: os.Args[0], Env: append(os.Environ(), kernelVariable+"="+name), Dir: b.TempDir(), Inline: inline,
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in a worker
	p := startShared(b, command)
	if (p.link.sharedArena() == nil) != inline {
		b.Fatal("it goes another way than it should")
	}
	input := bytes.Repeat([]byte(`{"text":"`+string(bytes.Repeat([]byte("x"), 1012))+"\"}\n"), planeRecords)
	var flight []*planeBatch
	finish := func() {
		if err := flight[0].results.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		flight[0].free()
		flight = flight[1:]
	}
	b.SetBytes(int64(len(input)))
	before := cpuTime(b, p.Pid())
	for b.Loop() {
		if len(flight) == planeWindow {
			finish()
		}
		flight = append(flight, submitPlane(b, p, input))
	}
	for len(flight) > 0 {
		finish()
	}
	used := cpuTime(b, p.Pid()) - before
	b.ReportMetric(used.Seconds()/(float64(b.N)*float64(len(input))/1e9), "cpu-s/GB")
}

// planeBatch is a batch in flight.
type planeBatch struct {
	memory  *protocol.Memory // nil for the garbage collector's
	results *plugins.Results
}

func (p *planeBatch) free() {
	if p.memory != nil {
		p.memory.Free()
	}
}

// submitPlane reads a batch and sends it, as a worker does.
func submitPlane(b *testing.B, p *Process, input []byte) *planeBatch {
	batch := &planeBatch{memory: p.Alloc(len(input))}
	var data []byte
	if batch.memory != nil {
		data = batch.memory.Bytes()[:len(input)]
	} else {
		data = make([]byte, len(input))
	}
	copy(data, input)
	records := make([][]byte, planeRecords)
	for i := range records {
		end := bytes.IndexByte(data, '\n')
		records[i], data = data[:end:end], data[end+1:]
	}
	batch.results = plugins.Submit(b.Context(), p, plugins.NewBatch(records))
	return batch
}

// cpuTime returns the CPU time of this process and another.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	for _, field := range []int{11, 12} { // user and system, in hundredths of a second
		ticks, err := strconv.Atoi(stat(pid, field))
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(ticks) * 10 * time.Millisecond
	}
	return total
}
