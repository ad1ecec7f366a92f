package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gpurun/gpurun/chunk/input"
)

// echo runs a file of 1 KB records through all of gpurun: strict validation, ordered
// output, durable points, the report. It compares that with a synced copy, GNU parallel
// and a Python pool.
func (b *bench) echo() error {
	input, err := b.makeInput("echo.jsonl", b.size(1_000_000, 20_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("echo.jsonl")
	copied := filepath.Join(b.dir, "copy.jsonl")
	ways := []struct {
		name string
		run  func() (time.Duration, error)
	}{
		{"dd", func() (time.Duration, error) {
			return timed(nil, "dd", "if="+input, "of="+copied, "bs=4M", "conv=fsync")
		}},
		{"cp, synced", func() (time.Duration, error) {
			return timed(nil, "sh", "-c", `cp "$0" "$1" && sync "$1"`, input, copied)
		}},
		{"gpurun", func() (time.Duration, error) { return b.job(input, "-k", "echo", "--gpus", "cpu:2") }},
		{"gpurun, piped", func() (time.Duration, error) {
			defer b.remove("copy.jsonl.gpurun")
			return timed(nil, "sh", "-c", `cat "$0" | "$1" run - -o "$2" -q -k echo --gpus cpu:2`, input, b.gpurun, copied)
		}},
		{"parallel", func() (time.Duration, error) { return b.parallel(input, copied, false) }},
		{"parallel, synced", func() (time.Duration, error) { return b.parallel(input, copied, true) }},
		{"pool", func() (time.Duration, error) { return timed(nil, "python3", "bench/pool.py", input, copied) }},
		{"lines", func() (time.Duration, error) { return timed(nil, "python3", "bench/lines.py", input, copied) }},
	}
	times := map[string][]time.Duration{}
	for round := range b.rounds {
		for _, way := range ways {
			if strings.HasPrefix(way.name, "parallel") && !has("parallel") || (way.name == "pool" || way.name == "lines") && (!has("python3") || round >= 3) {
				continue // slow, and with little variance
			}
			took, err := way.run()
			if err != nil {
				return err
			}
			times[way.name] = append(times[way.name], took)
			b.remove("copy.jsonl")
		}
	}
	b.addRatio("echo 1 GB, file to file, against dd with fsync", times, "gpurun", "dd", "<=", 2)
	b.addRatio("… from standard input, against from the file", times, "gpurun, piped", "gpurun", "", 0)
	if len(times["parallel"]) > 0 {
		b.addRatio("GNU parallel --pipe-part -k cat, and its output synced, against echo", times, "parallel, synced", "gpurun", ">=", 2)
		b.addRatio("… not synced", times, "parallel", "gpurun", ">=", 2)
		b.addRatio("… against cp, and its output synced", times, "parallel", "cp, synced", "", 0)
	}
	if len(times["pool"]) > 0 {
		b.addRatio("a pool of Python processes with json, against echo", times, "pool", "gpurun", ">=", 15)
		b.addRatio("… a leaner one, which sends lines", times, "lines", "gpurun", "", 0)
	}
	return nil
}

// parallel times GNU parallel. With durable, the time includes syncing its output, as
// gpurun does.
func (b *bench) parallel(input, output string, durable bool) (time.Duration, error) {
	out, err := os.Create(output)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	took, err := timed(out, "parallel", "--will-cite", "--pipe-part", "-k", "-a", input, "cat")
	if err != nil || !durable {
		return took, err
	}
	started := time.Now()
	err = out.Sync()
	return took + time.Since(started), err
}

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// scan measures counting and splitting a file in the page cache, on one core.
func (b *bench) scan() error {
	path, err := b.makeInput("scan.jsonl", b.size(1_000_000, 50_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("scan.jsonl")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var rates []float64
	for range b.rounds + 1 {
		started := time.Now()
		count, err := input.CountFile(context.Background(), path, input.Limits{}, nil)
		if err != nil {
			return err
		}
		if _, err := count.Cut(32, 128); err != nil {
			return err
		}
		rates = append(rates, float64(info.Size())/time.Since(started).Seconds()/1e9)
	}
	b.add("newline scan of 1 KB lines, one core", "GB/s", rates[1:], ">=", 4, nil) // the first warms the cache
	return nil
}
