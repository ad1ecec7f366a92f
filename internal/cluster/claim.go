package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A claim says which attempt computes a shard. The claims on a shard are numbered; the
// highest is current. A process may add the next one if the current attempt has ended or is
// lost, and does so by creating its name: of several that try, one succeeds.

func (r *Run) claimPath(key string, number int) string {
	return r.join(claimsDir, fmt.Sprintf("%s.%04d", key, number))
}

// claims returns the number of the current claim on each shard, by key.
func (r *Run) claims() (map[string]int, error) {
	entries, err := os.ReadDir(r.join(claimsDir))
	if err != nil {
		return nil, storage("read claims", err)
	}
	current := make(map[string]int)
	for _, entry := range entries {
		key, digits, _ := strings.Cut(entry.Name(), ".")
		if number, err := strconv.Atoi(digits); err == nil {
			current[key] = max(current[key], number)
		}
	}
	return current, nil
}

// take makes the attempt the one that computes its shard, if the current claim still is
// the one that the caller has seen.
func (a *Attempt) take(seen int) (bool, error) {
	if err := a.writeBeat(); err != nil { // or others would not see that it is alive
		return false, storage("write the attempt's beat", err)
	}
	won, err := publish(a.join(attemptFile), a.run.claimPath(a.key, seen+1))
	if won {
		a.claim = seen + 1
	}
	return won, err
}

// drop removes the folder of an attempt that has claimed nothing.
func (a *Attempt) drop() { _ = os.RemoveAll(a.dir) }
