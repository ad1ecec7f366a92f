package orchestrator

import (
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// keepStreams is how long the folder of a job without an output file is kept: its logs,
// its failures and its report are all that is left of it.
const keepStreams = 7 * 24 * time.Hour

// streamFolder is how such folders are called: see folderPath.
var streamFolder = regexp.MustCompile(`^\d{8}-\d{6}-\d+-[0-9a-f]{6}$`)

// pruneStreams removes the folders of streams that were left long ago. Nobody names them,
// so nobody would ever remove them.
func pruneStreams(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !streamFolder.MatchString(entry.Name()) || now.Sub(info.ModTime()) < keepStreams {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		lock, err := takeLock(filepath.Join(path, "lock"))
		if err != nil {
			continue // it runs
		}
		_ = os.RemoveAll(path)
		lock.release()
	}
}
