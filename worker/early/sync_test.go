package early

import (
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// disk records how much of each file is durable.
type disk struct {
	mu     sync.Mutex
	synced map[uint64]int64 // by inode
}

// recordSyncs makes logs sync on a disk that loses power in powerLoss.
func recordSyncs(t *testing.T) *disk {
	t.Helper()
	d, real := &disk{synced: make(map[uint64]int64)}, syncFile
	syncFile = func(file *os.File) error {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.synced[inode(info)] = info.Size()
		return nil
	}
	t.Cleanup(func() { syncFile = real })
	return d
}

// powerLoss returns the records whose answers are there when the machine is back.
func (d *disk) powerLoss(t *testing.T, dir string) map[int64]bool {
	t.Helper()
	after := t.TempDir()
	for _, path := range logs(t, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		size := d.synced[inode(info)]
		d.mu.Unlock()
		if err := os.WriteFile(filepath.Join(after, filepath.Base(path)), data[:size], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := newLog(after, 0, 1000)
	defer l.Close()
	if err := l.Import(); err != nil {
		t.Fatal(err)
	}
	found := make(map[int64]bool)
	for number := range l.places {
		found[number] = true
	}
	return found
}

func numbers(first, end int64) map[int64]bool {
	set := make(map[int64]bool)
	for n := first; n < end; n++ {
		set[n] = true
	}
	return set
}

// What was logged before the syncs survives a power loss: answers of a chunk in progress and
// those of one whose part is closed. So does what was durable before a log was replaced.
func TestPowerLoss(t *testing.T) {
	add := func(t *testing.T, l *Log, first, end int64) {
		t.Helper()
		for n := first; n < end; n++ {
			if err := l.Put(n, answerFor(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	syncNow := func(t *testing.T, s *Syncer) {
		t.Helper()
		if begun, err := s.Begin(); !begun || err != nil {
			t.Fatal(begun, err)
		}
		if s.running == nil {
			t.Fatal("there was nothing to sync")
		}
		if err := s.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		run  func(t *testing.T, dir string, l *Log)
		want map[int64]bool
	}{
		"not synced": {func(*testing.T, string, *Log) {}, numbers(0, 0)},
		"synced":     {func(t *testing.T, _ string, l *Log) { syncNow(t, l.syncer); add(t, l, 10, 15) }, numbers(0, 10)},
		"part closed": {func(t *testing.T, dir string, l *Log) {
			if err := l.Rotate(10, filepath.Join(dir, "part")); err != nil {
				t.Fatal(err)
			}
			syncNow(t, l.syncer)
		}, numbers(0, 10)},
		"part closed meanwhile": {func(t *testing.T, dir string, l *Log) {
			gate, recorded := make(chan struct{}), syncFile
			syncFile = func(file *os.File) error { <-gate; return recorded(file) }
			if begun, err := l.syncer.Begin(); !begun || err != nil {
				t.Fatal(begun, err)
			}
			if err := os.Rename(l.path, filepath.Join(dir, "part"+Suffix)); err != nil {
				t.Fatal(err)
			}
			if begun, err := l.syncer.Begin(); begun || err != nil {
				t.Errorf("a second one has begun: %v", err)
			}
			close(gate)
			if err := l.syncer.Finish(); err != nil {
				t.Fatal(err)
			}
		}, numbers(0, 10)},
		"committed in part": {func(t *testing.T, dir string, l *Log) {
			syncNow(t, l.syncer)
			part := filepath.Join(dir, "part")
			if err := l.Rotate(7, part); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(part + Suffix); err != nil { // with the part
				t.Fatal(err)
			}
		}, numbers(7, 10)},
		"imported": {func(t *testing.T, dir string, l *Log) {
			syncNow(t, l.syncer)
			l.Close()
			other := newLog(dir, 0, 20)
			t.Cleanup(other.Close)
			if err := other.Import(); err != nil {
				t.Fatal(err)
			}
			if len(logs(t, dir)) != 1 {
				t.Error("the log is still there: this test shows nothing")
			}
		}, numbers(0, 10)},
		"finished": {func(t *testing.T, _ string, l *Log) {
			if err := l.syncer.Finish(); err != nil || l.syncer.Dirty() {
				t.Errorf("%v", err)
			}
		}, numbers(0, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			dir, d := t.TempDir(), recordSyncs(t)
			l := newLog(dir, 0, 20)
			defer l.Close()
			add(t, l, 0, 10)
			test.run(t, dir, l)
			if got := d.powerLoss(t, dir); !maps.Equal(got, test.want) {
				t.Errorf("%v are there, want %v", got, test.want)
			}
		})
	}
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }
