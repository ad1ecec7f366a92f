// Command sleep is a kernel for benchmarks: it sleeps for the configured time per batch
// and can record when its first batch arrived. With "copy" it returns every record as
// new bytes, to use both directions.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/plugins"
)

type config struct {
	// Milliseconds to sleep per batch.
	Milliseconds float64 `json:"ms"`
	// KilobyteNS is how many nanoseconds to sleep for 1,000 bytes of the longest text times
	// the records: the cost of a model that pads its batches.
	KilobyteNS int `json:"kilobyte_ns"`
	// Stamp is the file to write the time of the first batch to, in nanoseconds.
	Stamp string `json:"stamp"`
	// Copy returns records as new lines.
	Copy bool `json:"copy"`
	// Floats is how many ready numbers the column "embedding" has, which is added to each record.
	Floats int `json:"floats"`
}

type kernel struct {
	plugins.Base
	config
	clock  *clock
	copies []byte
	floats []float32
	next   int // which of them the next batch gets
}

func (k *kernel) Describe(_ context.Context, c plugins.Config) (plugins.Info, error) {
	err := c.Decode(&k.config)
	info := plugins.Info{Name: "sleep", ReadsFetched: true}
	if k.KilobyteNS > 0 {
		info.Inputs = []string{"text"}
	}
	return info, err
}

func (k *kernel) Open(context.Context, plugins.Device, plugins.Config) (err error) {
	k.clock, err = newClock()
	return err
}

func (k *kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.Stamp != "" {
		if err := os.WriteFile(k.Stamp, fmt.Append(nil, time.Now().UnixNano()), 0o600); err != nil {
			return err
		}
		k.Stamp = ""
	}
	if err := k.clock.sleep(time.Duration(k.Milliseconds*float64(time.Millisecond)) + k.padded(batch)); err != nil {
		return err
	}
	if k.Floats > 0 {
		results.Column(plugins.Float32s("embedding", k.Floats, k.embeddings(batch.Len())))
		return nil
	}
	k.copies = k.copies[:0]
	for i := range batch.Len() {
		if k.Copy {
			start := len(k.copies)
			k.copies = append(k.copies, batch.Record(i)...)
			results.Line(i, k.copies[start:])
		} else {
			results.Unchanged(i)
		}
	}
	return nil
}

// embeddings returns numbers like those of normalized embeddings. They repeat only after
// several batches, so that no compressor finds them again.
func (k *kernel) embeddings(records int) []float32 {
	n := records * k.Floats
	if len(k.floats) < 16*n {
		random := rand.New(rand.NewPCG(1, 2))
		k.floats = make([]float32, 16*n)
		for i := range k.floats {
			k.floats[i] = float32(random.NormFloat64() / math.Sqrt(float64(k.Floats)))
		}
	}
	k.next = (k.next + 1) % 15
	return k.floats[k.next*n:][:n]
}

// padded returns how long to sleep for the padded texts of a batch.
func (k *kernel) padded(batch plugins.Batch) time.Duration {
	if k.KilobyteNS == 0 {
		return 0
	}
	longest := 0
	for i := range batch.Len() {
		if text, present := batch.Member(i, "text"); present {
			longest = max(longest, len(text)-2) // without its quotes
		}
	}
	return time.Duration(longest * batch.Len() * k.KilobyteNS / 1000)
}

// loop sleeps the given number of times and prints how many nanoseconds that took: the
// ideal time of a kernel that only sleeps.
func loop(times int, length time.Duration) error {
	clock, err := newClock()
	if err != nil {
		return err
	}
	began := time.Now()
	for range times {
		if err := clock.sleep(length); err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began).Nanoseconds())
	return nil
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "loop" {
		times, err := strconv.Atoi(os.Args[2])
		length, wrong := time.ParseDuration(os.Args[3])
		if err == nil && wrong == nil {
			err = loop(times, length)
		}
		if err := errors.Join(err, wrong); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	plugins.Serve(&kernel{})
}
