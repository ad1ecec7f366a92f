package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/fault"
)

// A run may be corrected as long as no shard is committed. The corrected run gets its own folder
// inside the folder of the first run. Nothing of the wrong run counts, and a process that still
// computes it cannot interfere. The folder with the highest number is the current run.

// numbered returns the folder of a run that was corrected number-1 times.
func numbered(folder string, number int) string {
	if number <= 1 {
		return folder
	}
	return filepath.Join(folder, fmt.Sprintf("corrected-%d", number))
}

// latest returns the number of the current run in a folder.
func latest(folder string) int {
	number := 1
	for {
		if _, err := os.Lstat(filepath.Join(numbered(folder, number+1), manifestFile)); err != nil {
			return number
		}
		number++
	}
}

// Correct replaces a run of which no shard is committed, and none is known to be computed by a
// process. If another process corrects it first, Correct returns that one's run: the
// caller must compare the two.
func (r *Run) Correct(m Manifest) (*Run, error) {
	return create(m, r.number+1)
}

// Corrected returns the manifests that corrections have replaced.
func (r *Run) Corrected() (list []Manifest, err error) {
	for number := 1; number < r.number; number++ {
		wrong, err := open(r.Output, number)
		if err != nil {
			return nil, err
		}
		list = append(list, wrong.Manifest)
	}
	return list, nil
}

// CheckIdle reports why the run cannot be corrected; nil if it can.
func (o Overview) CheckIdle() error {
	if n := o.Count(Done); n > 0 {
		return fault.RunBegun.New("%d of %d shards are computed", n, len(o.Shards))
	}
	for _, s := range o.Shards {
		if s.State == Running {
			return fault.RunBegun.New("pid %d on %s computes shard %d", s.PID, s.Host, s.Index)
		}
	}
	return nil
}

// Claimed reports whether any process has begun to compute a shard.
func (o Overview) Claimed() bool {
	for _, s := range o.Shards {
		if s.Claims > 0 {
			return true
		}
	}
	return false
}
