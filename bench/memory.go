package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// memory measures the peak memory of the orchestrator and of the largest worker, without
// the arena's pages, on a large input and on one a tenth of the size.
func (b *bench) memory() error {
	large := b.size(4_000_000, 40_000)
	peaks := map[string][2]float64{}
	for i, records := range []int{large / 10, large} {
		input, err := b.makeInput("memory.jsonl", records, 1000)
		if err != nil {
			return err
		}
		got, err := b.peaksOf(input)
		b.remove("memory.jsonl")
		if err != nil {
			return err
		}
		for role, bytes := range got {
			pair := peaks[role]
			pair[i] = bytes / 1e6
			peaks[role] = pair
		}
	}
	for _, role := range []string{"orchestrator", "worker"} {
		b.add("peak memory of the "+role+" on 4 GB", "MB", []float64{peaks[role][1]}, "<=", 100, nil)
		b.add("… against its peak on 400 MB", "×", []float64{peaks[role][1] / peaks[role][0]}, "<=", 1.25, nil)
	}
	return nil
}

// peaksOf runs echo and samples its processes until it exits.
func (b *bench) peaksOf(input string) (map[string]float64, error) {
	out := filepath.Join(b.dir, "out.jsonl")
	defer b.remove("out.jsonl", "out.jsonl.gpurun")
	cmd := exec.Command(b.gpurun, "run", "-k", "echo", input, "-o", out, "--gpus", "cpu:2", "-q")
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	peaks := map[string]float64{}
	for {
		select {
		case err := <-done:
			return peaks, err
		case <-time.After(20 * time.Millisecond):
		}
		pid := cmd.Process.Pid
		peaks["orchestrator"] = max(peaks["orchestrator"], privateMemory(pid))
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for _, child := range strings.Fields(string(children) + " " + childrenByThreads(pid)) {
			if n, err := strconv.Atoi(child); err == nil {
				peaks["worker"] = max(peaks["worker"], privateMemory(n))
			}
		}
	}
}

// childrenByThreads returns the children of all threads: the kernel lists a child under
// the thread that started it.
func childrenByThreads(pid int) string {
	var list strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		list.Write(data)
		list.WriteByte(' ')
	}
	return list.String()
}

// privateMemory returns the resident memory of a process without shared memory, in bytes.
func privateMemory(pid int) float64 {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer file.Close()
	total := 0.0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && (fields[0] == "RssAnon:" || fields[0] == "RssFile:") {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			total += kib * 1024
		}
	}
	return total
}
