package early

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Count returns how many records have an answer in the logs of a folder, without those that
// skip excludes. It takes no lock: a worker may add to a log meanwhile.
func Count(dir string, skip func(number int64) bool) int64 {
	return int64(len(Answered(dir, skip)))
}

// Holds reports whether the logs of a folder have an answer for one of the records from first up
// to, but not including, end.
func Holds(dir string, first, end int64) bool {
	paths, _ := filepath.Glob(filepath.Join(quoted(dir), "*"+Suffix))
	return slices.ContainsFunc(paths, func(path string) bool {
		file, err := os.Open(path)
		if err != nil {
			return false // it was committed meanwhile
		}
		defer file.Close()
		if from, to, known := rangeOf(file); known && (from >= end || to <= first) {
			return false
		}
		found := false
		_ = each(file, func(number int64, body []byte) error {
			found = found || body[0] < rangeVerdict && number >= first && number < end
			return nil
		})
		return found
	})
}

// Forget removes the logs with answers for records from a number on. No worker may use them.
func Forget(dir string, from int64) error {
	paths, _ := filepath.Glob(filepath.Join(quoted(dir), "*"+Suffix))
	for _, path := range paths {
		if reaches(path, from) {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove early log: %w", err)
			}
		}
	}
	return nil
}

// reaches reports whether a log may have answers for records from a number on.
func reaches(path string, from int64) bool {
	file, err := os.Open(path)
	if err != nil {
		return true
	}
	defer file.Close()
	_, end, known := rangeOf(file)
	return !known || end > from
}

// Answered returns the numbers of the records that Count counts.
func Answered(dir string, skip func(number int64) bool) map[int64]struct{} {
	paths, _ := filepath.Glob(filepath.Join(quoted(dir), "*"+Suffix))
	answered := make(map[int64]struct{})
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			continue // it was committed meanwhile
		}
		_ = each(file, func(number int64, body []byte) error {
			if body[0] < rangeVerdict && !skip(number) {
				answered[number] = struct{}{}
			}
			return nil
		})
		_ = file.Close()
	}
	return answered
}
