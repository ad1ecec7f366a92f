//go:build gpu

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/examples/cuda-kernel/cuda"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/minhash"
)

// These benchmarks need a GPU: make gpu-bench.

// kilobytes returns n records with a kilobyte of text each, in words of 1 to 10 letters.
func kilobytes(n int) [][]byte {
	random := rand.New(rand.NewPCG(7, 8))
	records := make([][]byte, n)
	for i := range records {
		text := make([]byte, 0, 1024)
		for len(text) < 1000 {
			for range 1 + random.IntN(10) {
				text = append(text, byte('a'+random.IntN(26)))
			}
			text = append(text, ' ')
		}
		records[i] = fmt.Appendf(nil, `{"id":%d,"text":"%s"}`, i, text[:len(text)-1])
	}
	return records
}

// work is the minimum cost of a batch, in instructions of an sm_90 multiprocessor. It has
// two integer units, each of which yields 64 results per clock: the first adds, shifts,
// compares and does logic; the second multiplies and adds.
//
// A round of SHA-1 has a function of three words, a rotation, and a rotation with an
// addition, all for the first unit, plus three more additions, which take three
// instructions on the second unit or two on the first. From round 16 on, the schedule
// adds two exclusive ors of three words and a rotation. A permutation takes a
// multiply-add and half a minimum, which handles two values at once; a legacy one also
// takes a wide multiplication and an addition with a shift.
type work struct {
	first, second float64 // instructions that only one unit can execute
	rounds        float64 // rounds of SHA-1, each with three additions
	bytes         float64 // bytes read and written
}

// shared returns the clocks of one multiprocessor if both units together yielded 64
// results per clock, as CUDA's guide counts integer instructions.
func (w work) shared() float64 { return (w.first + w.second + 2*w.rounds) / 64 }

// apart returns the clocks if the units work in parallel and the second, which has less
// to do, does all additions: no program can take fewer.
func (w work) apart() float64 { return max(w.first, w.second+3*w.rounds) / 64 }

func workOf(options minhash.Options, texts []string) (w work, shingles int) {
	p := parameters{size: uint32(options.Size), words: 1}
	for _, text := range texts {
		for _, shingle := range shinglesOf(text, p) {
			w.rounds += 80 * float64((len(shingle)+8)/64+1)
			shingles++
		}
		w.bytes += float64(len(text) + 4*options.NumPerm)
	}
	values := float64(shingles) * float64(options.NumPerm)
	w.first = w.rounds*3 + w.rounds*64/80*3 + 0.5*values
	w.second = values
	if options.Scheme == minhash.Legacy {
		w.first += values
		w.second += values
	}
	return w, shingles
}

// benchGPU returns an open GPU with the same batch in every slot.
func benchGPU(b *testing.B, config string, records [][]byte) *gpu {
	b.Helper()
	options, err := minhash.Parse(plugins.Config(config))
	if err != nil {
		b.Fatal(err)
	}
	driver, err := cuda.Load()
	if err != nil {
		b.Fatal(err)
	}
	g, err := openGPU(driver, options, 4)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.close(); err != nil {
			b.Error(err)
		}
	})
	for _, s := range g.slots {
		if err := g.start(s, plugins.NewBatch(records)); err != nil {
			b.Fatal(err)
		}
		if err := g.wait(s); err != nil {
			b.Fatal(err)
		}
	}
	return g
}

// BenchmarkGPUKernel compares the kernel alone, with all texts on the card, with the floor.
func BenchmarkGPUKernel(b *testing.B) {
	records := kilobytes(1 << 16)
	texts := make([]string, len(records))
	for i := range records {
		var record struct{ Text string }
		if err := plugins.NewBatch(records).Decode(i, &record); err != nil {
			b.Fatal(err)
		}
		texts[i] = record.Text
	}
	for _, config := range []string{`{}`, `{"scheme":"legacy"}`, `{"num_perm":256}`, `{"num_perm":256,"scheme":"legacy"}`} {
		b.Run(config, func(b *testing.B) {
			g := benchGPU(b, config, records)
			w, shingles := workOf(g.options, texts)
			multiprocessors, _ := g.device.Attribute(cuda.MultiprocessorCount)
			kilohertz, _ := g.device.Attribute(cuda.ClockRate)
			clocks := float64(multiprocessors) * float64(kilohertz) * 1e3
			shared, apart := w.shared()/clocks, w.apart()/clocks
			var times []float64
			for b.Loop() {
				times = append(times, float64(kernelTime(b, g))/1e3)
			}
			slices.Sort(times)
			took := times[len(times)/2]
			b.ReportMetric(took*1e6, "µs")
			b.ReportMetric(shared*1e6, "µs-floor")
			b.ReportMetric(100*shared/took, "%floor")
			b.ReportMetric(apart*1e6, "µs-units-apart")
			b.ReportMetric(100*apart/took, "%units-apart")
			b.ReportMetric(float64(shingles)/took/1e9, "Gshingles/s")
			b.ReportMetric(float64(len(texts))/took/1e6, "Mtexts/s")
			b.ReportMetric(w.bytes/took/1e9, "GB/s")
		})
	}
}

// kernelTime returns the milliseconds of one launch.
func kernelTime(b *testing.B, g *gpu) (milliseconds float32) {
	err := g.device.Do(func() error {
		s := g.slots[0]
		start, err := g.device.NewEvent()
		if err != nil {
			return err
		}
		defer start.Destroy()
		if err := start.Record(s.stream); err != nil {
			return err
		}
		if err := g.launch(s); err != nil {
			return err
		}
		if err := s.done.Record(s.stream); err != nil {
			return err
		}
		if err := s.done.Synchronize(); err != nil {
			return err
		}
		milliseconds, err = s.done.Since(start)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return milliseconds
}

// BenchmarkGPUOverlap measures the round trip to the card, from page-locked memory and
// back to it, with one batch at a time and with several in flight.
func BenchmarkGPUOverlap(b *testing.B) {
	records := kilobytes(1 << 14)
	for _, config := range []string{`{}`, `{"num_perm":256,"scheme":"legacy"}`} {
		b.Run(config, func(b *testing.B) {
			g := benchGPU(b, config, records)
			kernel := time.Duration(float64(kernelTime(b, g)) * 1e6)
			for b.Loop() {
				alone, together := roundTrips(b, g, 1), roundTrips(b, g, inFlight)
				b.ReportMetric(float64(kernel.Microseconds()), "µs/kernel")
				b.ReportMetric(float64(alone.Microseconds()), "µs/alone")
				b.ReportMetric(float64(together.Microseconds()), "µs/overlapped")
				b.ReportMetric(float64(alone)/float64(together), "×")
				b.ReportMetric(float64(len(records))/together.Seconds()/1e6, "Mtexts/s")
			}
		})
	}
}

// roundTrips returns the time per batch with depth batches in flight.
func roundTrips(b *testing.B, g *gpu, depth int) time.Duration {
	const batches = 200
	begin := time.Now()
	err := g.device.Do(func() error {
		for i := range batches + depth {
			s := g.slots[i%depth]
			if i >= depth {
				if err := s.done.Synchronize(); err != nil {
					return err
				}
			}
			if i < batches {
				if err := g.queue(s); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(begin) / batches
}
