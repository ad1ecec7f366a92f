package orchestrator

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/gpurun/gpurun/internal/files"
)

// keepStreams is how long the folder of a job without an output file is kept: its logs,
// failures and report are all that remains of it. keepKilled is how long the folder of
// a killed job keeps its data, including copies of its input: as long as a job may take
// to lock a folder that it has just created.
const (
	keepStreams = 7 * 24 * time.Hour
	keepKilled  = time.Minute
)

// streamFolder matches the names of such folders: see streamFolderPath.
var streamFolder = regexp.MustCompile(`^\d{8}-\d{6}-\d+-[0-9a-f]{6}$`)

// pruneStreams removes old folders of streams, and the data in those whose jobs were
// killed. Users do not know these folders, so they would pile up.
func pruneStreams(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !files.IsOwn(info) || !streamFolder.MatchString(entry.Name()) {
			continue
		}
		f := &folder{path: filepath.Join(dir, entry.Name())}
		age := now.Sub(info.ModTime())
		if age < keepStreams && (age < keepKilled || !f.holdsData()) {
			continue
		}
		lock, err := takeLock(context.Background(), f.join("lock"), nil)
		if err != nil {
			continue // it is running
		}
		if f.discard(); age >= keepStreams {
			_ = os.RemoveAll(f.path)
		} else {
			_ = os.Chtimes(f.path, now, info.ModTime()) // do not make it look younger
		}
		lock.release()
	}
}

// holdsData reports whether the folder holds more than a finished stream leaves behind.
func (f *folder) holdsData() bool {
	for _, name := range discarded {
		if found, _ := filepath.Glob(f.join(name)); len(found) > 0 {
			return true
		}
	}
	return false
}
