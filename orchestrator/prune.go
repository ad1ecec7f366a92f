package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// keepStreams is how long the folder of a job without an output file is kept: its logs,
// its failures and its report are all that is left of it. keepKilled is how long one that
// was killed keeps more than that, copies of its input among it: as long as it may take a
// job to lock a folder that it has just made.
const (
	keepStreams = 7 * 24 * time.Hour
	keepKilled  = time.Minute
)

// streamFolder is how such folders are called: see streamFolderPath.
var streamFolder = regexp.MustCompile(`^\d{8}-\d{6}-\d+-[0-9a-f]{6}$`)

// pruneStreams removes the folders of streams that were left long ago, and the data in
// those whose jobs were killed. Nobody names them, so nobody would ever remove them.
func pruneStreams(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !isOwn(info) || !streamFolder.MatchString(entry.Name()) {
			continue
		}
		f := &folder{path: filepath.Join(dir, entry.Name())}
		age := now.Sub(info.ModTime())
		if age < keepStreams && (age < keepKilled || !f.holdsData()) {
			continue
		}
		lock, err := takeLock(context.Background(), f.join("lock"), nil)
		if err != nil {
			continue // it runs
		}
		if f.discard("-"); age >= keepStreams {
			_ = os.RemoveAll(f.path)
		} else {
			_ = os.Chtimes(f.path, now, info.ModTime()) // it is no younger than before
		}
		lock.release()
	}
}

// holdsData: there is more in the folder than a finished stream leaves.
func (f *folder) holdsData() bool {
	for _, name := range discarded {
		if found, _ := filepath.Glob(f.join(name)); len(found) > 0 {
			return true
		}
	}
	return false
}
