package main

import (
	"path/filepath"
	"time"
)

// tables compares the formats of an input with the same records: JSON lines, which workers read
// themselves, Parquet, and Arrow, named and piped.
func (b *bench) tables() error {
	input, err := b.makeInput("tables.jsonl", b.size(400_000, 20_000), 1000)
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(b.dir, name) }
	defer b.remove("tables.jsonl", "tables.parquet", "tables.arrow", "tables.parquet.gpurun", "tables.arrow.gpurun")
	for _, name := range []string{"tables.parquet", "tables.arrow"} {
		if _, err := timed(nil, b.gpurun, "run", input, "-o", at(name), "-q", "-k", "echo", "--gpus", "cpu:2", "--columns", "id,text"); err != nil {
			return err
		}
	}
	named := func(path string) func() (time.Duration, error) {
		return func() (time.Duration, error) { return b.job(path, "-k", "echo", "--gpus", "cpu:2") }
	}
	ways := []struct {
		name string
		run  func() (time.Duration, error)
	}{
		{"JSON lines", named(input)},
		{"Parquet", named(at("tables.parquet"))},
		{"Arrow", named(at("tables.arrow"))},
		{"Arrow, piped", func() (time.Duration, error) {
			defer b.remove("out.jsonl", "out.jsonl.gpurun")
			return timed(nil, "sh", "-c", `cat "$0" | "$1" run - -o "$2" -q -k echo --gpus cpu:2`, at("tables.arrow"), b.gpurun, at("out.jsonl"))
		}},
	}
	times := map[string][]time.Duration{}
	for range b.rounds {
		for _, way := range ways {
			took, err := way.run()
			if err != nil {
				return err
			}
			times[way.name] = append(times[way.name], took)
		}
	}
	b.addRatio("rate with an Arrow input, against Parquet (1 KB records)", times, "Parquet", "Arrow", ">=", 1)
	b.addRatio("… against JSON lines", times, "JSON lines", "Arrow", "", 0)
	b.addRatio("rate with a piped Arrow input, against a named one", times, "Arrow", "Arrow, piped", ">=", 0.8)
	return nil
}
