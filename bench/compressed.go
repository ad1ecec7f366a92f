package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// compressed measures decoding in gpurun against a program that decodes for it, and how
// many files are decoded at a time.
func (b *bench) compressed() error {
	for _, program := range []string{"gzip", "zcat", "zstd", "taskset"} {
		if !has(program) {
			return fmt.Errorf("%s is missing", program)
		}
	}
	input, err := b.makeInput("packed.jsonl", b.size(400_000, 20_000), 1000)
	if err != nil {
		return err
	}
	defer b.remove("packed.jsonl")
	files := filepath.Join(b.dir, "files")
	defer b.remove("files")
	pack := exec.Command("sh", "-c", `set -e; cd "$1"; gzip -1 -c "$0" > packed.gz; zstd -q -f -3 "$0" -o packed.zst
mkdir -p files; split -n l/100 -a 3 --additional-suffix=.jsonl "$0" files/; gzip -1 files/*.jsonl`, input, b.dir)
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	defer b.remove("packed.gz")
	defer b.remove("packed.zst")
	gz, zst := filepath.Join(b.dir, "packed.gz"), filepath.Join(b.dir, "packed.zst")
	out := filepath.Join(b.dir, "unpacked.jsonl")
	piped := func(decoder, path string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return timed(nil, "sh", "-c", decoder+` "$0" | "$1" run - -o "$2" -q -k echo --gpus cpu:2`, path, b.gpurun, out)
		}
	}
	cores := func(list string) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return timed(nil, "taskset", "-c", list, b.gpurun, "run", files, "-o", out, "-q", "-k", "echo", "--gpus", "cpu:2")
		}
	}
	ways := []struct {
		name string
		run  func() (time.Duration, error)
	}{
		{"gzip", func() (time.Duration, error) { return b.job(gz, "-k", "echo", "--gpus", "cpu:2") }},
		{"zcat", piped("zcat", gz)},
		{"zstd", func() (time.Duration, error) { return b.job(zst, "-k", "echo", "--gpus", "cpu:2") }},
		{"zstd -dc", piped("zstd -q -dc", zst)},
		{"one core", cores("0")},
		{"two cores", cores("0,1")},
	}
	times := map[string][]time.Duration{}
	for range b.rounds {
		for _, way := range ways {
			took, err := way.run()
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			times[way.name] = append(times[way.name], took)
			b.remove("unpacked.jsonl")
			b.remove("unpacked.jsonl.gpurun")
		}
	}
	b.addRatio("gpurun behind zcat, against gpurun with the gzip file", times, "zcat", "gzip", ">=", 0.9)
	b.addRatio("gpurun behind zstd -dc, against gpurun with the zstd file", times, "zstd -dc", "zstd", ">=", 0.8)
	b.addRatio("100 gzip files on one core, against on two", times, "one core", "two cores", ">=", 1.7)
	return nil
}
