package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// makeInput writes records of about size bytes each, with words like real text.
func (b *bench) makeInput(name string, records, size int) (string, error) {
	path := filepath.Join(b.dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	random := rand.New(rand.NewPCG(1, 2))
	out := bufio.NewWriterSize(file, 1<<20)
	var text strings.Builder
	for i := range records {
		text.Reset()
		for text.Len() < size-30 {
			fmt.Fprintf(&text, "word%d ", random.IntN(5000))
		}
		fmt.Fprintf(out, "{\"id\":%d,\"text\":%q}\n", i, text.String())
	}
	return path, out.Flush()
}

// timed runs a program and returns how long it took. If the program fails, the error
// contains its standard error. stdout may be nil.
func timed(stdout io.Writer, program string, args ...string) (time.Duration, error) {
	cmd := exec.Command(program, args...)
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	started := time.Now()
	err := cmd.Run()
	took := time.Since(started)
	if err != nil {
		return took, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return took, nil
}

// job runs gpurun on input and removes the output.
func (b *bench) job(input string, args ...string) (time.Duration, error) {
	out := filepath.Join(b.dir, "out.jsonl")
	took, err := timed(nil, b.gpurun, append([]string{"run", input, "-o", out, "-q"}, args...)...)
	b.remove("out.jsonl", "out.jsonl.gpurun")
	return took, err
}

func (b *bench) remove(names ...string) {
	for _, name := range names {
		_ = os.RemoveAll(filepath.Join(b.dir, name))
	}
}

// size returns full, or quick in a quick run.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}
