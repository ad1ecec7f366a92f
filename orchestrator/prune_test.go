package orchestrator

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPruneStreams: what streams have left behind goes after a while; what runs, what is
// young, and what is none of gpurun's stays.
func TestPruneStreams(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for _, test := range []struct {
		name   string
		age    time.Duration
		locked bool
		stays  bool
	}{
		{"20200101-000000-1-abcdef", 2 * keepStreams, false, false},
		{"20200101-000000-2-abcdef", 2 * keepStreams, true, true},
		{"20200101-000000-3-abcdef", keepStreams / 2, false, true},
		{"out.jsonl.gpurun", 2 * keepStreams, false, true},
		{"notes", 2 * keepStreams, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(dir, test.name)
			if err := os.MkdirAll(filepath.Join(path, "logs"), 0o777); err != nil {
				t.Fatal(err)
			}
			if test.locked {
				lock, err := takeLock(filepath.Join(path, "lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer lock.release()
			}
			if err := os.Chtimes(path, now, now.Add(-test.age)); err != nil {
				t.Fatal(err)
			}
			pruneStreams(dir, now)
			if _, err := os.Stat(path); (err == nil) != test.stays {
				t.Errorf("stays: %v", err)
			}
		})
	}
}
