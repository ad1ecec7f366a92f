package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// oneWorker measures how long the GPU waits for gpurun: ten batches of one second each.
func (b *bench) oneWorker() error {
	input, err := b.makeInput("one.jsonl", 10_000, 1000)
	if err != nil {
		return err
	}
	defer b.remove("one.jsonl")
	milliseconds := b.size(1000, 20)
	var times []float64
	for range min(b.rounds, 3) {
		took, err := b.job(input, "-k", b.sleep, "--gpus", "cpu:1", "--batch-size", "1000", "--kernel-config", fmt.Sprintf(`{"ms":%d}`, milliseconds))
		if err != nil {
			return err
		}
		times = append(times, took.Seconds()*1000/float64(milliseconds))
	}
	b.add("10 batches of 1 s on one worker (ideal 10 s)", "s", times, "<=", 10.2, nil)
	return nil
}

// eightDevices runs 8 workers that sleep 10 ms per batch, compared with a bare loop of
// the same sleeps in 8 processes, because a sleep takes longer than requested.
func (b *bench) eightDevices() error {
	const devices, size = 8, 128
	batches := b.size(1000, 50) // per device
	input, err := b.makeInput("eight.jsonl", devices*batches*size, 200)
	if err != nil {
		return err
	}
	defer b.remove("eight.jsonl")
	var shares, bare []float64
	for range b.rounds {
		loop, err := b.sleepLoop(devices, batches, 10*time.Millisecond)
		if err != nil {
			return err
		}
		events, err := b.eventsOf(input, "-k", b.sleep, "--gpus", "cpu:8", "--kernel-config", `{"ms":10}`)
		if err != nil {
			return err
		}
		most := float64(devices*batches*size) / loop.Seconds()
		shares = append(shares, 100*events.rate/most)
		bare = append(bare, 100*most*0.010/(devices*size))
	}
	b.add("8 devices, 10 ms a batch, of the rate of a bare loop of such sleeps", "%", shares, ">=", 97, nil)
	b.add("… the bare loop, of what 10 ms would give", "%", bare, "", 0, nil)
	return nil
}

// manyDevices runs 64 workers with tiny records on the few cores of this machine.
func (b *bench) manyDevices() error {
	const devices, size = 64, 128
	batches := b.size(6000, 30)
	input, err := b.makeInput("many.jsonl", devices*batches*size, 100)
	if err != nil {
		return err
	}
	defer b.remove("many.jsonl")
	events, err := b.eventsOf(input, "-k", b.sleep, "--gpus", "cpu:64", "--kernel-config", `{"ms":10}`)
	if err != nil {
		return err
	}
	loop, err := b.sleepLoop(devices, 500, 10*time.Millisecond)
	if err != nil {
		return err
	}
	most := float64(devices*500*size) / loop.Seconds()
	b.add("64 devices, 10 ms a batch, records of 100 bytes, of the rate of a bare loop", "%", []float64{100 * events.rate / most}, ">=", 90, nil)
	return nil
}

// sleepLoop returns how long the given number of sleeps takes in several processes that
// do nothing else. It uses processes because a kernel is one.
func (b *bench) sleepLoop(processes, times int, length time.Duration) (time.Duration, error) {
	longest := make([]time.Duration, processes)
	var group errgroup.Group
	for i := range longest {
		group.Go(func() error {
			cmd := exec.Command(b.sleep, "loop", fmt.Sprint(times), length.String())
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // a worker's share with this many processes
			output, err := cmd.Output()
			if err != nil {
				return err
			}
			nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(output)), 10, 64)
			longest[i] = time.Duration(nanoseconds)
			return err
		})
	}
	err := group.Wait()
	return slices.Max(longest), err
}

// steady describes a job from the moment all workers are ready to its last batch.
type steady struct {
	rate float64 // records per second
}

// eventsOf runs a job and reads its events.
func (b *bench) eventsOf(input string, args ...string) (steady, error) {
	path := filepath.Join(b.dir, "events.jsonl")
	defer b.remove("events.jsonl")
	if _, err := b.job(input, append(args, "--json-events="+path)...); err != nil {
		return steady{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return steady{}, err
	}
	defer file.Close()
	var ready, last time.Time
	var before, done int64
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct {
			Event string
			Time  time.Time
			Job   struct{ Records int64 }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return steady{}, err
		}
		switch event.Event {
		case "worker_ready":
			ready, before = event.Time, done
		case "progress", "chunk_done":
			last, done = event.Time, max(done, event.Job.Records)
		}
	}
	return steady{rate: float64(done-before) / last.Sub(ready).Seconds()}, lines.Err()
}

// start measures the time from starting the program to the first batch inside the kernel.
func (b *bench) start() error {
	input, err := b.makeInput("start.jsonl", 1000, 1000)
	if err != nil {
		return err
	}
	defer b.remove("start.jsonl")
	stamp := filepath.Join(b.dir, "stamp")
	var times []float64
	for range 2*b.rounds + 1 {
		started := time.Now()
		if _, err := b.job(input, "-k", b.sleep, "--gpus", "cpu:1", "--kernel-config", fmt.Sprintf(`{"stamp":%q}`, stamp)); err != nil {
			return err
		}
		text, err := os.ReadFile(stamp)
		if err != nil {
			return err
		}
		first, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return err
		}
		times = append(times, time.Unix(0, first).Sub(started).Seconds()*1000)
		b.remove("stamp")
	}
	b.add("from exec to the first batch inside the kernel", "ms", times[1:], "<=", 80, nil)
	return nil
}
