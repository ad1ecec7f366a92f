package folder

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPruneStreams: old folders of streams are removed; running, recent and foreign
// ones stay.
func TestPruneStreams(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for _, test := range []struct {
		name   string
		age    time.Duration
		locked bool
		stays  bool
		// keepsData: its job may be running, or gpurun did not create it.
		keepsData bool
	}{
		{"20200101-000000-1-ABCDEF", 2 * keepStreams, false, false, false},
		{"20200101-000000-2-ABCDEF", 2 * keepStreams, true, true, true},
		{"20200101-000000-3-ABCDEF", keepStreams / 2, false, true, false},
		{"20200101-000000-4-ABCDEF", keepStreams / 2, true, true, true},
		{"20200101-000000-5-ABCDEF", keepKilled / 2, false, true, true},
		{"out.jsonl.gpurun", 2 * keepStreams, false, true, true},
		{"notes", 2 * keepStreams, false, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(dir, test.name)
			for _, name := range []string{"logs", "spool", "parts"} {
				if err := os.MkdirAll(filepath.Join(path, name), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			if test.locked {
				lock, err := takeLock(t.Context(), filepath.Join(path, "lock"), nil)
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
			if !test.stays {
				return
			}
			// A killed job's folder keeps its age when its data is removed.
			info, err := os.Stat(path)
			if err != nil || !test.locked && !info.ModTime().Equal(now.Add(-test.age)) {
				t.Errorf("%v, modified %v", err, info.ModTime())
			}
			if _, err := os.Stat(filepath.Join(path, "spool")); (err == nil) != test.keepsData {
				t.Errorf("keeps its data: %v", err)
			}
		})
	}
}
