package main

import (
	"bufio"
	"fmt"
	"testing"
	"time"
)

// TestFlush: in tail -f x | gpurun run - -o -, the result of a record arrives although no
// other record follows, whether it succeeds or not. A batch that is not full is not waited
// for.
func TestFlush(t *testing.T) {
	for name, kernel := range map[string][]string{
		"succeed":             {"-k", "echo"},
		"fail":                {"-k", "exec:while read line; do echo no; done"},
		"one batch at a time": {"-k", "exec:cat", "--exec-mode", "batch", "--batch-size", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"run", "-", "-o", "-", "--gpus", "cpu:2", "--flush", "10ms"}, kernel...)
			cmd, stderr, _ := command(t, args...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			start(t, cmd)
			lines := make(chan string)
			go func() {
				defer close(lines)
				for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
					lines <- scanner.Text()
				}
			}()
			for i := range 20 {
				for range 1 + i%3 {
					fmt.Fprintf(stdin, "{\"id\":%d}\n", i)
				}
				for range 1 + i%3 {
					select {
					case line := <-lines:
						if line == "" {
							t.Fatalf("no result\n%s", stderr)
						}
					case <-time.After(20 * time.Second):
						t.Fatalf("record %d has no result\n%s", i, stderr)
					}
				}
			}
			stdin.Close()
			if line, more := <-lines; more {
				t.Errorf("more results than records: %s", line)
			}
			if err := cmd.Wait(); name != "fail" && err != nil {
				t.Errorf("%v\n%s", err, stderr)
			}
		})
	}
}
