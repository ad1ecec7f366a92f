package folder

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// otherHost is a holder that no lock of ours can reach.
var otherHost = lockHolder{Host: "elsewhere", Boot: "another", PID: 4711}

// leftLock creates the lock of a job folder as a killed holder leaves it, touched at
// that time.
func leftLock(t *testing.T, holder lockHolder, touched time.Time) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lock")
	data, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, touched, touched); err != nil {
		t.Fatal(err)
	}
	return path
}

// onNetwork makes no file system carry locks, and time pass quickly.
func onNetwork(t *testing.T) {
	carries, beat, stale := carriesLocks, heartbeat, staleAfter
	t.Cleanup(func() { carriesLocks, heartbeat, staleAfter = carries, beat, stale })
	carriesLocks = func(*os.File) bool { return false }
	heartbeat, staleAfter = 20*time.Millisecond, 100*time.Millisecond
}

// TestLockOfDeadHolderIsTaken: on a local file system a free lock is proof enough,
// whatever the holder's host name and clock.
func TestLockOfDeadHolderIsTaken(t *testing.T) {
	now := time.Now()
	for name, touched := range map[string]time.Time{
		"just now": now, "in the future": now.Add(24 * time.Hour), "long ago": now.Add(-24 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			notices := ""
			lock, err := takeLock(t.Context(), leftLock(t, otherHost, touched), func(text string) { notices += text })
			if err != nil {
				t.Fatal(err)
			}
			lock.release()
			if notices != "" {
				t.Errorf("notices %q", notices)
			}
		})
	}
}

// TestLockIsHeldByOther: a lock that is held is not taken, whatever name is in it.
func TestLockIsHeldByOther(t *testing.T) {
	path := leftLock(t, otherHost, time.Now())
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = takeLock(t.Context(), path, nil)
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "pid 4711 on elsewhere") {
		t.Errorf("error %v", err)
	}
}

// TestLockOnNetworkIsObserved: where locks may not reach, a holder is alive as long as
// its file changes, and dead once it has not changed for long enough by our clock,
// whatever the file's time.
func TestLockOnNetworkIsObserved(t *testing.T) {
	onNetwork(t)
	for name, touched := range map[string]time.Time{
		"just now": time.Now(), "in the future": time.Now().Add(24 * time.Hour), "long ago": time.Now().Add(-24 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			path := leftLock(t, otherHost, touched)
			notices := ""
			lock, err := takeLock(t.Context(), path, func(text string) { notices += text })
			if err != nil {
				t.Fatal(err)
			}
			lock.release()
			if !strings.Contains(notices, "pid 4711 on elsewhere") {
				t.Errorf("notices %q", notices)
			}

			path = leftLock(t, otherHost, touched)
			_, err = takeLock(t.Context(), path, func(string) { // it is alive, whatever its clock
				next := touched.Add(time.Millisecond)
				if err := os.Chtimes(path, next, next); err != nil {
					t.Error(err)
				}
			})
			if fault.KindOf(err) != fault.Conflict {
				t.Errorf("a living holder: %v", err)
			}
			if _, err = takeLock(t.Context(), path, nil); fault.KindOf(err) != fault.Conflict {
				t.Errorf("without waiting: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if _, err = takeLock(ctx, path, func(string) { cancel() }); fault.KindOf(err) != fault.Canceled {
				t.Errorf("stopped: %v", err)
			}
		})
	}
}

// TestLockOnNetworkOfSameKernel: containers on one machine need not wait for each
// other's heartbeat.
func TestLockOnNetworkOfSameKernel(t *testing.T) {
	onNetwork(t)
	lock, err := takeLock(t.Context(), leftLock(t, lockHolder{Host: "another-pod", Boot: bootID(), PID: 1}, time.Now()), nil)
	if err != nil {
		t.Fatal(err)
	}
	lock.release()
}

// TestLockTakenTwice: if two processes take over from a dead holder at once, where
// locks do not exclude, one gives way.
func TestLockTakenTwice(t *testing.T) {
	onNetwork(t)
	path := leftLock(t, otherHost, time.Now())
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	first, second := &lock{file: file, holder: lockHolder{Nonce: "first"}}, &lock{file: file, holder: lockHolder{Nonce: "second"}}
	first.write("")
	second.write("")
	if err := first.confirm(t.Context(), path); fault.KindOf(err) != fault.Conflict {
		t.Errorf("first: %v", err)
	}
	if err := second.confirm(t.Context(), path); err != nil {
		t.Errorf("second: %v", err)
	}
}

// TestLockFollowsNoLink: the target of a planted link is not emptied.
func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	_, err := takeLock(t.Context(), filepath.Join(dir, "lock"), nil)
	if fault.KindOf(err) != fault.Conflict {
		t.Errorf("error %v", err)
	}
	if data, _ := os.ReadFile(precious); string(data) != "mine" {
		t.Errorf("it holds %q", data)
	}
}

// TestLockRemovesOnlyRunDirs: the path of a folder to remove comes from a file.
func TestLockRemovesOnlyRunDirs(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	elsewhere := t.TempDir()
	make := func(path string) string {
		if err := os.MkdirAll(filepath.Join(path, "w0-1"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(temp, "gpurun-ABCDEF2344")
	if err := os.Symlink(make(filepath.Join(elsewhere, "linked")), link); err != nil {
		t.Fatal(err)
	}
	for path, goes := range map[string]bool{
		make(filepath.Join(temp, "gpurun-ABCDEF2345")):      true,
		make(filepath.Join(elsewhere, "gpurun-ABCDEF2345")): false,
		make(filepath.Join(temp, "gpurun-leases")):          false,
		make(filepath.Join(temp, "gpurun-1000")):            false,
		link:                                                false,
	} {
		lock, err := takeLock(t.Context(), leftLock(t, lockHolder{Host: "h", PID: 1, Temp: path}, time.Now()), nil)
		if err != nil {
			t.Fatal(err)
		}
		lock.release()
		if _, err := os.Stat(filepath.Join(path, "w0-1")); (err != nil) != goes {
			t.Errorf("%s: %v", path, err)
		}
	}
}
