// Package floats compares ways to write the numbers of an embedding as JSON: gpurun's,
// strconv's and sonic's. It is a separate module, because gpurun does not need sonic.
//
//	make bench-floats
package floats

import (
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/bytedance/sonic"
	"github.com/gpurun/gpurun/plugins"
	"golang.org/x/sys/unix"
)

const width = 384

func embedding() []float32 {
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, width)
	for i := range values {
		values[i] = float32(random.NormFloat64() * 0.05)
	}
	return values
}

// processorTime returns the CPU time of this thread.
func processorTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

func BenchmarkEmbedding(b *testing.B) {
	values := embedding()
	column := plugins.Float32s("v", width, values)
	var dst []byte
	for _, way := range []struct {
		name  string
		write func()
	}{
		{"gpurun", func() { dst = column.AppendValue(dst[:0], 0) }},
		{"strconv", func() {
			dst = append(dst[:0], '[')
			for _, f := range values {
				dst = append(strconv.AppendFloat(dst, float64(f), 'f', -1, 32), ',')
			}
		}},
		{"sonic", func() { dst, _ = sonic.Marshal(values) }},
		{"encoding/json", func() { dst, _ = json.Marshal(values) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			runtime.LockOSThread() // measures this thread's CPU time only
			defer runtime.UnlockOSThread()
			started := processorTime()
			for b.Loop() {
				way.write()
			}
			each := float64(processorTime()-started) / float64(b.N) / width
			b.ReportMetric(each, "cpu-ns/value")
			b.ReportMetric(1e3/each, "Mvalues/s")
		})
	}
}
