package early

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/internal/files"
)

// Syncer makes the logs of a worker durable, from time to time and without delaying the
// worker. A log that was renamed after its part is synced too, unless it was removed with the
// part: results may have to wait for others before they are in the output. A Syncer is used
// by the goroutine that uses the logs.
type Syncer struct {
	dirty   map[string]bool // paths of logs that were written to since they were synced
	running chan error      // the outcome of the syncs in progress; nil if there are none
}

// NewSyncer returns a Syncer for the logs that are created with it.
func NewSyncer() *Syncer { return &Syncer{dirty: make(map[string]bool)} }

// Dirty reports whether something is not durable yet.
func (s *Syncer) Dirty() bool { return len(s.dirty) > 0 }

func (s *Syncer) wrote(path string) { s.dirty[path] = true }

func (s *Syncer) renamed(from, to string) {
	if s.dirty[from] {
		delete(s.dirty, from)
		s.dirty[to] = true
	}
}

// Begin starts to sync what was written so far. It returns false while an earlier sync is
// running, and the error of one that has failed.
func (s *Syncer) Begin() (begun bool, err error) {
	if s.running != nil {
		select {
		case err := <-s.running:
			if s.running = nil; err != nil {
				return false, err
			}
		default:
			return false, nil
		}
	}
	// The files are opened here: they may be renamed before they are synced.
	var opened []*os.File
	for path := range s.dirty {
		file, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was committed
		}
		if err != nil {
			closeAll(opened)
			return false, fmt.Errorf("open early log: %w", err)
		}
		opened = append(opened, file)
	}
	clear(s.dirty)
	if len(opened) == 0 {
		return true, nil
	}
	running := make(chan error, 1)
	s.running = running
	go func() {
		defer closeAll(opened)
		running <- syncAll(opened)
	}()
	return true, nil
}

// Finish syncs everything and waits for it.
func (s *Syncer) Finish() error {
	for {
		if s.running != nil {
			err := <-s.running
			if s.running = nil; err != nil {
				return err
			}
		}
		if !s.Dirty() {
			return nil
		}
		if _, err := s.Begin(); err != nil {
			return err
		}
	}
}

// sync makes what the log holds durable.
func (l *Log) sync() error {
	if l.file == nil {
		return nil
	}
	if err := l.Flush(); err != nil {
		return err
	}
	delete(l.syncer.dirty, l.path)
	return syncAll([]*os.File{l.file})
}

// syncFile syncs a file; tests record it.
var syncFile = (*os.File).Sync

// syncAll syncs files of one folder, and then the folder, which has their names.
func syncAll(list []*os.File) error {
	for _, file := range list {
		if err := syncFile(file); err != nil {
			return fmt.Errorf("sync early log: %w", err)
		}
	}
	if err := files.SyncDir(filepath.Dir(list[0].Name())); err != nil {
		return fmt.Errorf("sync early log: %w", err)
	}
	return nil
}

func closeAll(list []*os.File) {
	for _, file := range list {
		_ = file.Close()
	}
}
