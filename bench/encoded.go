package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/chunk/encode"
)

// encodedWay is one way to get a compressed output.
type encodedWay struct {
	name string
	run  func() (time.Duration, error)
}

// encoded compares compressed output with a pipe into the compressor at the same level, with
// zstd also from compressed input. The compressor of a pipe is a program of its own.
func (b *bench) encoded() error {
	input, err := b.makeInput("encoded.jsonl", b.size(500_000, 20_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("encoded.jsonl", "encoded.jsonl.zst")
	ways := []encodedWay{{"plain", func() (time.Duration, error) { return b.encodedJob(input, "out.jsonl") }}}
	if has("zstd") {
		if _, err := timed(nil, "zstd", "-q", input); err != nil {
			return err
		}
		ways = append(ways,
			encodedWay{"zstd in and out", func() (time.Duration, error) { return b.encodedJob(input+".zst", "out.jsonl.zst") }},
			encodedWay{"zstd in and out piped", func() (time.Duration, error) {
				return timed(nil, "sh", "-c", `zstd -dcq "$1" | "$0" run - -o - -q -k echo --gpus cpu:2 | zstd -cq -"$2" > "$3"`,
					b.gpurun, input+".zst", strconv.Itoa(encode.ZstdLevel), filepath.Join(b.dir, "piped"))
			}})
		ways = append(ways, b.encodedWays(input, "zstd", encode.ZstdLevel, "out.jsonl.zst")...)
	}
	if has("gzip") {
		ways = append(ways, b.encodedWays(input, "gzip", encode.GzipLevel, "out.jsonl.gz")...)
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
	for _, name := range []string{"zstd in and out", "zstd", "gzip"} {
		if len(times[name]) == 0 {
			continue
		}
		// The rate of the job against that of the pipe is the time of the pipe against that
		// of the job.
		b.addRatio("rate with "+name+", against pipes at the same level", times, name+" piped", name, ">=", 0.8)
		b.add("… its size against that of the pipe", "×", []float64{float64(sizes[name]) / float64(sizes[name+" piped"])}, "<=", 1.1, nil)
		b.addRatio("… time against plain lines", times, name, "plain", "", 0)
	}
	return nil
}

// encodedWays compress the output of a plain input.
func (b *bench) encodedWays(input, program string, level int, output string) []encodedWay {
	return []encodedWay{
		{program, func() (time.Duration, error) { return b.encodedJob(input, output) }},
		{program + " piped", func() (time.Duration, error) {
			return timed(nil, "sh", "-c", `"$0" run "$1" -o - -q -k echo --gpus cpu:2 | "$2" -cq -"$3" > "$4"`,
				b.gpurun, input, program, strconv.Itoa(level), filepath.Join(b.dir, "piped"))
		}},
	}
}

func (b *bench) encodedJob(input, name string) (time.Duration, error) {
	return timed(nil, b.gpurun, "run", input, "-o", filepath.Join(b.dir, name), "-q", "-k", "echo", "--gpus", "cpu:2")
}
