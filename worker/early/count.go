package early

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// logsIn returns the paths of the logs in a folder.
func logsIn(dir string) []string {
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
	paths, _ := filepath.Glob(filepath.Join(quoted, "*"+Suffix))
	return paths
}

// eachIn passes the entries of all logs in a folder to take, which returns false to continue with
// the next log. It takes no lock: a worker may add to a log meanwhile.
func eachIn(dir string, take func(path string, number int64, a Answer) bool) {
	for _, path := range logsIn(dir) {
		file, err := os.Open(path)
		if err != nil {
			continue // it was committed meanwhile
		}
		each(file, func(number int64, a Answer) bool { return take(path, number, a) })
		_ = file.Close()
	}
}

// Answered returns the numbers of the records that have an answer in the logs of a folder, without
// those that skip excludes.
func Answered(dir string, skip func(number int64) bool) map[int64]struct{} {
	answered := make(map[int64]struct{})
	eachIn(dir, func(_ string, number int64, a Answer) bool {
		if a.Verdict < chunkRange && !skip(number) {
			answered[number] = struct{}{}
		}
		return true
	})
	return answered
}

// Holds reports whether the logs of a folder have an answer for one of the records from first up
// to, but not including, end.
func Holds(dir string, first, end int64) (found bool) {
	eachIn(dir, func(_ string, number int64, a Answer) bool {
		if a.Verdict == chunkRange {
			return number < end && a.Nulls > first
		}
		found = found || a.Verdict < chunkRange && number >= first && number < end
		return !found
	})
	return found
}

// Forget removes the logs with answers for records from a number on. No worker may use them.
func Forget(dir string, from int64) error {
	before := make(map[string]bool)
	eachIn(dir, func(path string, _ int64, a Answer) bool {
		before[path] = a.Verdict == chunkRange && a.Nulls <= from
		return false
	})
	for _, path := range logsIn(dir) {
		if before[path] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove early log: %w", err)
		}
	}
	return nil
}
