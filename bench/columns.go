package main

import (
	"os"
	"path/filepath"
	"time"
)

// columns compares the ways to store embeddings of 384 numbers that a kernel returns ready:
// as JSON lines, in a Parquet file, and as a NumPy array beside the lines.
func (b *bench) columns() error {
	input, err := b.makeInput("columns.jsonl", b.size(200_000, 5_000), 200)
	if err != nil {
		return err
	}
	defer b.remove("columns.jsonl")
	array := filepath.Join(b.dir, "embedding.npy")
	ways := []struct {
		name, output string
		args         []string
	}{
		{"JSON lines", "out.jsonl", nil},
		{"Parquet", "out.parquet", nil},
		{"array", "meta.jsonl", []string{"--column", "embedding=" + array}},
	}
	times, sizes := map[string][]time.Duration{}, map[string]int64{}
	for range b.rounds {
		for _, w := range ways {
			args := append([]string{
				"run", input, "-o", filepath.Join(b.dir, w.output), "-q", "-k", b.sleep, "--kernel-config", `{"floats":384}`, "--gpus", "cpu:2", "--batch-size", "512",
			}, w.args...)
			took, err := timed(nil, b.gpurun, args...)
			if err != nil {
				return err
			}
			times[w.name] = append(times[w.name], took)
			sizes[w.name] = 0
			for _, name := range []string{w.output, "embedding.npy"} {
				if info, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
					sizes[w.name] += info.Size()
				}
			}
			b.remove(w.output, w.output+".gpurun", "embedding.npy", "embedding.mask.npy")
		}
	}
	share := func(name string) []float64 { return []float64{float64(sizes[name]) / float64(sizes["JSON lines"])} }
	b.addRatio("rate with Parquet, against JSON lines (384 floats)", times, "JSON lines", "Parquet", ">=", 1)
	b.add("… its size against that of JSON lines", "×", share("Parquet"), "<=", 0.4, nil)
	b.addRatio("rate with a NumPy array, against JSON lines (384 floats)", times, "JSON lines", "array", ">=", 1.5)
	b.add("… the size of both files against that of JSON lines", "×", share("array"), "", 0, nil)
	return nil
}
