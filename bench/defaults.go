package main

import (
	"fmt"
	"time"
)

// defaults compares a job with default flags on a machine without a GPU with the best of
// a few fixed numbers of workers.
func (b *bench) defaults() error {
	if !has("python3") {
		return nil
	}
	for _, one := range []struct {
		name, kernel  string
		records, size int
	}{
		{"a Python kernel", "bench/words.py", 300_000, 1000},
		{"an exec: program", "exec:python3 bench/words_exec.py", 150_000, 1000},
		{"a kernel that multiplies matrices on all cores", "bench/matrix.py", 20_000, 200},
	} {
		if err := b.defaultsOf(one.name, one.kernel, b.size(one.records, one.records/50), one.size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) defaultsOf(name, kernel string, records, size int) error {
	input, err := b.makeInput("defaults.jsonl", records, size)
	if err != nil {
		return err
	}
	defer b.remove("defaults.jsonl")
	fixed := []string{"cpu:1", "cpu:2", "cpu:4"}
	times := map[string][]time.Duration{}
	for range max(7, b.rounds) {
		for _, devices := range append([]string{"default"}, fixed...) {
			args := []string{"-k", kernel}
			if devices != "default" {
				args = append(args, "--gpus", devices)
			}
			took, err := b.job(input, args...)
			if err != nil {
				return err
			}
			times[devices] = append(times[devices], took)
		}
	}
	best := fixed[0]
	for _, devices := range fixed {
		if seconds(times[devices]) < seconds(times[best]) {
			best = devices
		}
	}
	b.addRatio(fmt.Sprintf("%s with default flags, of the rate of the best of cpu:1, cpu:2, cpu:4 (%s)", name, best), times, best, "default", ">=", 0.95)
	for _, devices := range fixed {
		b.addRatio(fmt.Sprintf("… of the rate of %s", devices), times, devices, "default", "", 0)
	}
	return nil
}
