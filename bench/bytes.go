package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// bytes compares images in a column of a Parquet file with the same images as files that --fetch
// reads, for a kernel that decodes them.
func (b *bench) bytes() error {
	if exec.Command("python3", "-c", "import PIL, pyarrow").Run() != nil {
		return nil
	}
	folder := filepath.Join(b.dir, "jpegs")
	if _, err := timed(nil, "python3", "bench/jpegs.py", folder, fmt.Sprint(b.size(10_000, 500))); err != nil {
		return err
	}
	defer b.remove("jpegs")
	times := map[string][]time.Duration{}
	for range b.rounds {
		for name, args := range map[string][]string{"files": {"in.jsonl", "--fetch", "image=path"}, "parquet": {"in.parquet"}} {
			took, err := b.job(filepath.Join(folder, args[0]), append(args[1:], "-k", "bench/jpeg.py", "--gpus", "cpu:1")...)
			if err != nil {
				return err
			}
			times[name] = append(times[name], took)
		}
	}
	b.addRatio("10,000 JPEGs as files with --fetch, against the same in a Parquet column", times, "files", "parquet", ">=", 0.95)
	return nil
}
