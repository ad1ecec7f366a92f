package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/chunk/encode"
)

// encoded compares compressed output with a pipe into the compressor at the same level. The
// compressor of a pipe is a program of its own, on a core of its own.
func (b *bench) encoded() error {
	input, err := b.makeInput("encoded.jsonl", b.size(500_000, 20_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("encoded.jsonl")
	type way struct {
		name string
		run  func() (time.Duration, error)
	}
	ways := []way{{"plain", func() (time.Duration, error) { return b.encodedJob(input, "out.jsonl") }}}
	for _, c := range []struct{ program, level, ending string }{
		{"zstd", strconv.Itoa(encode.ZstdLevel), ".zst"}, {"gzip", strconv.Itoa(encode.GzipLevel), ".gz"},
	} {
		if !has(c.program) {
			continue
		}
		ways = append(ways,
			way{c.program, func() (time.Duration, error) { return b.encodedJob(input, "out.jsonl"+c.ending) }},
			way{c.program + " piped", func() (time.Duration, error) {
				return timed(nil, "sh", "-c", `"$0" run "$1" -o - -q -k echo --gpus cpu:2 | "$2" -c -"$3" > "$4"`,
					b.gpurun, input, c.program, c.level, filepath.Join(b.dir, "piped"))
			}})
	}
	times, sizes := map[string][]time.Duration{}, map[string]int64{}
	for range b.rounds {
		for _, w := range ways {
			took, err := w.run()
			if err != nil {
				return err
			}
			times[w.name] = append(times[w.name], took)
			for _, name := range []string{"out.jsonl", "out.jsonl.zst", "out.jsonl.gz", "piped"} {
				if info, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
					sizes[w.name] = info.Size()
				}
				b.remove(name, name+".gpurun")
			}
		}
	}
	for _, program := range []string{"zstd", "gzip"} {
		if len(times[program]) == 0 {
			continue
		}
		// The rate of the job against that of the pipe.
		b.addRatio("rate of "+program+" output against a pipe into "+program+" at the same level", times, program+" piped", program, ">=", 0.8)
		b.add("… its size against that of the pipe", "×", []float64{float64(sizes[program]) / float64(sizes[program+" piped"])}, "<=", 1.1, nil)
		b.addRatio("… time against plain output", times, program, "plain", "", 0)
	}
	return nil
}

func (b *bench) encodedJob(input, name string) (time.Duration, error) {
	return timed(nil, b.gpurun, "run", input, "-o", filepath.Join(b.dir, name), "-q", "-k", "echo", "--gpus", "cpu:2")
}
