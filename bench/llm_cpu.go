package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// kernelTimes samples the CPU time of the kernel processes of a job while it runs.
type kernelTimes struct {
	job  int
	used map[int]time.Duration // by process, as last seen
	stop chan struct{}
	done chan struct{}
}

// sampleEvery is how much of a process's end a sample can miss.
const sampleEvery = 100 * time.Millisecond

// sampleKernels samples until end is called.
func sampleKernels(job int) *kernelTimes {
	k := &kernelTimes{job: job, used: make(map[int]time.Duration), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(k.done)
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				k.sample()
			case <-k.stop:
				return
			}
		}
	}()
	return k
}

// end returns the CPU time of all of them.
func (k *kernelTimes) end() (sum time.Duration) {
	close(k.stop)
	<-k.done
	for _, used := range k.used {
		sum += used
	}
	return sum
}

func (k *kernelTimes) sample() {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range processes {
		arguments, err := os.ReadFile(filepath.Join(path, "cmdline"))
		if err != nil || !bytes.Contains(arguments, []byte("\x00"+wire.KernelArgument+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(path))
		if used, parent, err := processTimes(pid); err == nil && k.descends(parent) {
			k.used[pid] = used
		}
	}
}

// descends reports whether a process is the job or below it.
func (k *kernelTimes) descends(pid int) bool {
	for pid > 1 {
		if pid == k.job {
			return true
		}
		_, parent, err := processTimes(pid)
		if err != nil {
			return false
		}
		pid = parent
	}
	return false
}

// processTimes reads the CPU time and the parent of a process.
func processTimes(pid int) (used time.Duration, parent int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const ppid, user, system = 1, 11, 12 // after the name
	if len(fields) <= system {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %q", pid, data)
	}
	parent, _ = strconv.Atoi(fields[ppid])
	for _, field := range []string{fields[user], fields[system]} {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * tick
	}
	return used, parent, nil
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond
