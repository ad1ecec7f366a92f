package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// async compares an async kernel with a bare asyncio program that has as many records in
// flight and the same latencies: from the first call to the last answer.
func (b *bench) async() error {
	records, scale := 20_000, 1.0
	if b.quick {
		records, scale = 2_000, 0.1
	}
	input, err := b.makeNumbers("async.jsonl", records)
	if err != nil {
		return err
	}
	defer b.remove("async.jsonl")
	path, target := filepath.Join(b.dir, "async.times"), filepath.Join(b.dir, "async.bare")
	defer b.remove("async.times")
	defer b.remove("async.bare")
	var shares, bares, ours []float64
	for range b.rounds {
		output, err := exec.Command("python3", "bench/async_bare.py", input, target, fmt.Sprint(scale)).Output()
		if err != nil {
			return err
		}
		var bare, took, cpu float64
		if _, err := fmt.Sscan(string(output), &bare); err != nil {
			return err
		}
		if _, err := b.job(input, "-k", "bench/async_kernel.py", "--gpus", "cpu:1", "--kernel-config", fmt.Sprintf(`{"scale":%g,"path":%q}`, scale, path)); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := fmt.Fscan(bytes.NewReader(data), &took, &cpu); err != nil {
			return err
		}
		shares, bares, ours = append(shares, 100*bare/took), append(bares, bare), append(ours, took)
	}
	b.add(fmt.Sprintf("async kernel, %d records, 256 in flight, of the rate of bare asyncio", records), "%", shares, ">=", 97, nil)
	b.add("… bare asyncio", "s", bares, "", 0, nil)
	b.add("… async kernel", "s", ours, "", 0, nil)
	return nil
}

// makeNumbers writes n records with an id and a text.
func (b *bench) makeNumbers(name string, n int) (string, error) {
	path := filepath.Join(b.dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	for i := range n {
		fmt.Fprintf(out, "{\"id\":%d,\"text\":\"Summarize the record with the number %d in one sentence.\"}\n", i, i)
	}
	return path, out.Flush()
}
