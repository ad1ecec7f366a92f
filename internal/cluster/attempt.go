package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/chunk/commit"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
)

const (
	attemptFile = "attempt.json"
	beatFile    = "beat.json"
	endFile     = "end.json"
	resultFile  = "result.json"
	errorsName  = "errors.jsonl"
)

// Who is the process that makes an attempt.
type Who struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Start, Namespace and Boot identify the process on its host.
	Start     uint64 `json:"start,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Boot      string `json:"boot,omitempty"`
	// Labels are what its scheduler calls it.
	Labels map[string]string `json:"labels,omitempty"`
}

// self returns this process.
func self(labels map[string]string) Who {
	host, _ := os.Hostname()
	p := proc.Self()
	return Who{Host: host, PID: p.PID, Start: p.Start, Namespace: p.Namespace, Boot: bootID(), Labels: labels}
}

// ended reports whether the process is known to have exited, because it ran on this host.
func (w Who) ended() bool {
	if w.Boot == "" || w.Boot != bootID() {
		return false
	}
	return proc.Identity{PID: w.PID, Start: w.Start, Namespace: w.Namespace}.Ended()
}

// bootID identifies the running kernel; "" if the system provides no ID.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// attemptInfo is attempt.json.
type attemptInfo struct {
	Run     string    `json:"run"`
	Attempt string    `json:"attempt"`
	Started time.Time `json:"started"`
	// Beside is the number of the claim whose attempt is alive while this one computes a copy
	// of its shard; 0 for an attempt that is no copy.
	Beside int `json:"beside,omitempty"`
	Who
}

// beat is beat.json. Sequence changes with each; the time is for people only, because the
// clocks of hosts differ.
type beat struct {
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
	Done     int64     `json:"done"`
	Answers  int64     `json:"answers,omitempty"`
	Failed   int64     `json:"failed"`
	Rate     float64   `json:"records_per_second"`
}

// How an attempt can end.
const (
	endCommitted = "committed"
	endDuplicate = "duplicate" // another attempt was first
	endStopped   = "stopped"   // resumable
	endFailed    = "failed"
)

// end is end.json.
type end struct {
	State   string `json:"state"`
	Kind    string `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
}

// Attempt is one attempt of this process to compute a shard, or to merge.
type Attempt struct {
	// Shard is its number, -1 for the merge.
	Shard int
	// First and Records are the shard's range.
	First, Records int64

	run       *Run
	info      attemptInfo
	key       string
	dir       string
	claim     int
	committed map[int]Result // those of other shards, as far as they are known

	mu       sync.Mutex
	last     beat
	progress func() Progress // see Follow
}

func (a *Attempt) join(name string) string { return filepath.Join(a.dir, name) }

// Output is where the attempt writes the shard.
func (a *Attempt) Output() string { return joinOutput(a.dir, a.run.outputName()) }

// Errors is where it writes the failed records; "" if they stay in the output.
func (a *Attempt) Errors() string {
	if a.run.Manifest.Errors == "" {
		return ""
	}
	return a.join(errorsName)
}

// Array is where the attempt writes an array of the manifest.
func (a *Attempt) Array(array commit.Array) string { return a.join(arrayName(array)) }

// Earlier returns the outputs of earlier attempts at the same shard, the newest claim
// first. They may be unfinished, damaged, or still being written.
func (a *Attempt) Earlier() (outputs []string) {
	for number := a.claim - 1; number > 0; number-- {
		var info attemptInfo
		if err := readJSON(a.run.claimPath(a.key, number), &info); err == nil && info.Attempt != "" {
			outputs = append(outputs, a.run.outputOf(info.Attempt))
		}
	}
	return outputs
}

// Progress is how far an attempt is: how many records are done, and how many further ones have a
// logged answer. Rate is in records per second.
type Progress struct {
	Done    chunk.Counts
	Answers int64
	Rate    float64
}

// Follow shows those who watch how far the attempt is, from now on.
func (a *Attempt) Follow(progress func() Progress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress = progress
}

// writeBeat shows that the attempt is alive. It is renamed into place, but not synced.
func (a *Attempt) writeBeat() error {
	a.mu.Lock()
	a.last.Sequence++
	a.last.Time = time.Now().UTC()
	if a.progress != nil {
		p := a.progress()
		a.last.Done, a.last.Answers, a.last.Failed, a.last.Rate = p.Done.Records, p.Answers, p.Done.Failed, p.Rate
	}
	now := a.last
	a.mu.Unlock()
	crash.Point("beat")
	return replaceJSON(a.join(beatFile), now)
}

// finish notes how the attempt ended. The note of an attempt that has committed need not be
// durable: the commit is what counts.
func (a *Attempt) finish(state string, err error) error {
	e := end{State: state}
	if err != nil {
		e.Kind, e.Message = fault.KindOf(err).String(), err.Error()
	}
	if state == endCommitted {
		return replaceJSON(a.join(endFile), e)
	}
	_ = a.writeBeat() // with its last counts
	return writeJSON(a.join(endFile), e)
}

// Discard removes the output of the attempt and its job folder.
func (a *Attempt) Discard() {
	paths := []string{a.Output(), a.Errors(), filepath.Clean(a.Output()) + ".gpurun"}
	arrays, _ := filepath.Glob(a.join("column-*.npy"))
	for _, path := range append(paths, arrays...) {
		_ = os.RemoveAll(path)
	}
}

// claimAfter makes the attempt the one that computes its shard, if the current claim still is
// the one that the caller has seen. An attempt that claims nothing leaves no folder.
func (a *Attempt) claimAfter(seen int) (won bool, err error) {
	err = storage("write the attempt's beat", a.writeBeat()) // or others would not see that it is alive
	if err == nil {
		won, err = publish(a.join(attemptFile), a.run.claimPath(a.key, seen+1))
	}
	if won {
		a.claim = seen + 1
	} else {
		_ = os.RemoveAll(a.dir)
	}
	return won, err
}

// commit publishes the result of a finished shard. It returns false if another attempt was
// first; then that one's output counts.
func (a *Attempt) commit(result Result) (bool, error) {
	result.Run, result.Attempt, result.Shard, result.First = a.run.ID, a.info.Attempt, a.Shard, a.First
	result.Who, result.Finished = a.info.Who, time.Now().UTC()
	if result.Counts.Records != a.Records {
		return false, fault.OtherRun.New("shard %d has %d records instead of %d; the input has changed", a.Shard, result.Counts.Records, a.Records)
	}
	if err := writeJSON(a.join(resultFile), result); err != nil {
		return false, err
	}
	crash.Point("shard-result")
	won, err := publish(a.join(resultFile), a.run.commitPath(a.Shard))
	if errors.Is(err, os.ErrNotExist) {
		return false, fault.RunDamaged.New("the run folder %s was removed while the shard was computed", a.run.Dir)
	}
	crash.Point("shard-committed")
	return won, err
}

// live shows that the attempt is alive until stop is called. It cancels the attempt if its
// shard was committed by another one, as after this process was frozen for a while.
func (a *Attempt) live(interval time.Duration, cancel context.CancelCauseFunc, notice func(string)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		failed := false
		for {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			if a.Shard >= 0 && a.run.isCommitted(a.Shard) {
				cancel(errElsewhere)
				return
			}
			err := a.writeBeat()
			if err != nil && !failed {
				notice("the run folder cannot be written, so other machines may take this shard for lost: " + err.Error())
			}
			failed = err != nil
		}
	}()
	return func() { close(done); <-ended }
}
