package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// someFailed is gpurun's exit status if some records failed.
const someFailed = 3

// raising measures a Python kernel that raises for 2% of its records, against the same job
// without bad records and against a plain script that catches the exceptions.
func (b *bench) raising() error {
	if !has("python3") {
		return nil
	}
	records := b.size(200_000, 5_000)
	clean, err := b.makePrices("clean.jsonl", records, 0)
	if err != nil {
		return err
	}
	bad, err := b.makePrices("bad.jsonl", records, 50)
	if err != nil {
		return err
	}
	defer b.remove("clean.jsonl", "bad.jsonl")
	plain := filepath.Join(b.dir, "plain.jsonl")
	times := map[string][]time.Duration{}
	for range b.rounds {
		took, err := b.job(clean, "-k", "bench/etl.py", "--gpus", "cpu:2")
		if err != nil {
			return err
		}
		times["clean"] = append(times["clean"], took)
		took, err = b.job(bad, "-k", "bench/etl.py", "--gpus", "cpu:2")
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != someFailed {
			return fmt.Errorf("exit status %d expected, not %w", someFailed, err)
		}
		times["raising"] = append(times["raising"], took)
		if took, err = timed(nil, "python3", "bench/etl.py", bad, plain); err != nil {
			return err
		}
		times["script"] = append(times["script"], took)
		b.remove("plain.jsonl")
	}
	b.addRatio("a Python kernel that raises for 2% of the records, against one that does not", times, "raising", "clean", "<=", 1.5)
	b.addRatio("… against a plain Python script", times, "raising", "script", "", 0)
	return nil
}

// makePrices writes records with a price; that of each record whose number is a multiple of
// badEach is not a number.
func (b *bench) makePrices(name string, records, badEach int) (string, error) {
	path := filepath.Join(b.dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	for i := range records {
		price := fmt.Sprintf("%d.%02d", i%1000, i%100)
		if badEach > 0 && i%badEach == 0 {
			price = fmt.Sprintf("n/a %d", i)
		}
		fmt.Fprintf(out, "{\"id\":%d,\"name\":\"Item  No. %d \",\"price\":%q}\n", i, i, price)
	}
	return path, out.Flush()
}
