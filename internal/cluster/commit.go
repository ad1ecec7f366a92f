package cluster

import (
	"errors"
	"os"
	"time"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/fault"
)

// Result is a finished shard.
type Result struct {
	Run     string `json:"run"`
	Attempt string `json:"attempt"`
	Shard   int    `json:"shard"`
	First   int64  `json:"first"`
	chunk.Counts
	// Output is the size and checksum of the shard's output; of a folder of parts, those of
	// its manifest. Errors are those of the errors file.
	Output chunk.FileSum `json:"output"`
	Errors chunk.FileSum `json:"errors,omitzero"`
	// Usage is what the kernels have counted, such as requests, in all attempts at the shard.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Kinds are the failed records by kind.
	Kinds map[string]int64 `json:"kinds,omitempty"`
	// Skipped is how many input files could not be read to their end.
	Skipped int `json:"skipped_inputs,omitempty"`
	// Rate is in records per second.
	Rate     float64       `json:"records_per_second"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	Finished time.Time     `json:"finished"`
	Who
}

func (r *Run) commitPath(shard int) string { return r.join(commitsDir, key(shard)+".json") }

// result reads the committed result of a shard.
func (r *Run) result(shard int) (Result, error) {
	var result Result
	path := r.commitPath(shard)
	if err := readJSON(path, &result); err != nil {
		return result, storage("read commit", err)
	}
	first, records := r.Range(shard)
	if result.Run != r.ID || result.Shard != shard || result.First != first || result.Counts.Records != records {
		return result, fault.OtherRun.New("%s is not a result of shard %d of this run: it has records %d to %d of run %s",
			path, shard, result.First, result.First+result.Counts.Records, result.Run)
	}
	return result, nil
}

// ResultOutput is where the output of a committed shard is.
func (r *Run) ResultOutput(result Result) string { return r.outputOf(result.Attempt) }

// isCommitted reports whether any attempt has committed the shard.
func (r *Run) isCommitted(shard int) bool {
	_, err := os.Stat(r.commitPath(shard))
	return err == nil
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
