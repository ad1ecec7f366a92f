package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// python measures the cost of crossing to Python and back: a kernel that returns its
// text under a new name, compared with a process pool that does the same.
func (b *bench) python() error {
	if !has("python3") {
		return nil
	}
	input, err := b.makeInput("python.jsonl", b.size(1_000_000, 20_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("python.jsonl")
	copied := filepath.Join(b.dir, "copy.jsonl")
	times := map[string][]time.Duration{}
	for range min(b.rounds, 3) {
		took, err := b.job(input, "-k", "bench/copy.py", "--gpus", "cpu:2")
		if err != nil {
			return err
		}
		times["gpurun"] = append(times["gpurun"], took)
		if took, err = timed(nil, "python3", "bench/pool.py", input, copied, "copy"); err != nil {
			return err
		}
		times["pool"] = append(times["pool"], took)
		b.remove("copy.jsonl")
	}
	b.addRatio("a pool of Python processes with json, against a Python kernel", times, "pool", "gpurun", ">=", 5)
	if err := b.pythonPrepare(); err != nil {
		return err
	}
	return b.pythonStart()
}

// pythonPrepare compares prepare in threads and in processes, for a tokenizer in pure
// Python with one worker. With two cores, the best possible ratio is 2.
func (b *bench) pythonPrepare() error {
	input, err := b.makeInput("python.jsonl", b.size(200_000, 5_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("python.jsonl")
	times := map[string][]time.Duration{}
	for range min(b.rounds, 3) {
		for _, how := range []string{"threads", "processes"} {
			took, err := b.job(input, "-k", "bench/prepare_"+how+".py", "--gpus", "cpu:1")
			if err != nil {
				return err
			}
			times[how] = append(times[how], took)
		}
	}
	b.addRatio("prepare of a Python kernel in threads, against processes", times, "threads", "processes", ">=", 1.3)
	return nil
}

// pythonStart measures the time from starting the interpreter to the results of the
// first batch, minus the time of an interpreter that does nothing.
func (b *bench) pythonStart() error {
	file, err := filepath.Abs("bench/copy.py")
	if err != nil {
		return err
	}
	config, err := json.Marshal(resolve.PythonConfig{File: file})
	if err != nil {
		return err
	}
	var times []float64
	for range 2*b.rounds + 1 {
		nothing, err := timed(nil, "python3", "-c", "pass")
		if err != nil {
			return err
		}
		started := time.Now()
		if err := firstBatch(config); err != nil {
			return err
		}
		times = append(times, (time.Since(started)-nothing).Seconds()*1000)
	}
	b.add("Python from start to first batch, over python3 -c pass", "ms", times[1:], "<=", 150, nil)
	return nil
}

// firstBatch starts a Python kernel and computes one batch.
func firstBatch(config plugins.Config) error {
	ctx := context.Background()
	k := python.New()
	defer k.Close()
	if _, err := k.Describe(ctx, config); err != nil {
		return err
	}
	if err := k.Open(ctx, plugins.Device{Name: "CPU 0", Threads: 1}, config); err != nil {
		return err
	}
	_, err := plugins.Call(ctx, k, plugins.NewBatch([][]byte{[]byte(`{"text":"a"}`)}))
	return err
}
