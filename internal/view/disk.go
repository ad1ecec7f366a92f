package view

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/files"
)

// The course of a job is kept in a file in its folder, so that it survives kill -9 and the next
// run continues it. Points are thinned out and moments are limited, so the file stays small and
// is always written whole.
const (
	historyFile = "history.json"
	// saveInterval is how often the file is written: a kill loses at most this much.
	saveInterval = 10 * time.Second
	// maxHistory is far more than the file ever has; a larger one is not ours.
	maxHistory = 256 << 20
)

// document is the content of the file.
type document struct {
	Interval time.Duration `json:"interval_ns"`
	Devices  []string      `json:"devices"`
	Points   []point       `json:"points"`
	Moments  []Moment      `json:"moments"`
}

// disk writes the file from a goroutine of its own: a slow disk must not stop the job.
type disk struct {
	path  string
	saved time.Time
	work  chan document
	ended chan struct{}
}

func openDisk(folder string) *disk {
	d := &disk{path: filepath.Join(folder, historyFile), work: make(chan document, 1), ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		for content := range d.work {
			if data, err := json.Marshal(content); err == nil {
				_ = files.WriteDurably(d.path, data, files.PrivateMode) // the job does not depend on it
			}
		}
	}()
	return d
}

// close saves the last content. It waits for a hanging disk only briefly.
func (d *disk) close(content document) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case d.work <- content:
	case <-ctx.Done():
	}
	close(d.work)
	select {
	case <-d.ended:
	case <-ctx.Done():
	}
}

// load reads the file of a job folder. A damaged one is as good as none.
func load(folder string) (h history, t timeline) {
	file, err := os.OpenFile(filepath.Join(folder, historyFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return h, t
	}
	defer file.Close()
	var content document
	if json.NewDecoder(io.LimitReader(file, maxHistory)).Decode(&content) != nil {
		return h, t
	}
	return history{content.Interval, content.Devices, content.Points}, timeline{content.Moments}
}
