package folder

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
	"github.com/gpurun/gpurun/internal/owned"
)

// lock keeps two jobs out of one folder. Between processes under one kernel, or
// on a local file system, a file lock is enough: a process that gets it may conclude
// that the previous holder is dead. A network file system may not propagate the lock to
// other hosts, so the holder also writes its identity and touches the file at
// intervals.
//
// Whether a holder on another host is alive is observed: it is as long as its file
// changes. The file's timestamp alone proves nothing, since it comes from another
// clock.
type lock struct {
	file   *os.File
	holder lockHolder
	stop   chan struct{}
	done   chan struct{}
}

type lockHolder struct {
	Host string `json:"host"`
	// Boot identifies the running kernel, which containers with different host names
	// share; empty if the system provides no ID.
	Boot string `json:"boot,omitempty"`
	PID  int    `json:"pid"`
	// Nonce distinguishes two holders that are otherwise equal.
	Nonce string `json:"nonce,omitempty"`
	// Temp is its folder for sockets, which a killed holder leaves behind.
	Temp string `json:"temp,omitempty"`
}

// The durations are variables so that tests need not wait.
var (
	heartbeat = 10 * time.Second
	// staleAfter is how long a holder on another host must show no heartbeat: longer
	// than any pause of a healthy one.
	staleAfter = time.Minute
)

// carriesLocks reports whether every process that can open the file sees locks on it.
var carriesLocks = files.IsLocal

// takeLock locks a job folder. If only observation can tell whether a holder on another
// host is alive, it calls notice and waits; with a nil notice it assumes that the
// holder is alive.
func takeLock(ctx context.Context, path string, notice func(text string)) (*lock, error) {
	file, err := owned.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, owned.ErrNotRegular) {
		return nil, fault.FolderDamaged.New("the job folder is damaged: %w; remove it and run the same command again", err)
	}
	if err != nil {
		return nil, notMade(err)
	}
	holder := readHolder(file)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUse(holder)
		}
		return nil, fault.JobRunning.New("lock job folder: %w", err)
	}
	host, _ := os.Hostname()
	l := &lock{
		file: file, holder: lockHolder{Host: host, Boot: bootID(), PID: os.Getpid(), Nonce: rand.Text()},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	observed := !holder.isDead(file)
	if observed {
		if err := awaitDeath(ctx, path, holder, notice); err != nil {
			file.Close()
			return nil, err
		}
	} else if holder.Temp != "" {
		removeTemp(holder.Temp)
	}
	l.write("")
	if observed {
		if err := l.confirm(ctx, path); err != nil {
			file.Close()
			return nil, err
		}
	}
	go l.beat()
	return l, nil
}

func inUse(holder lockHolder) error {
	return fault.JobRunning.New("another gpurun process is already running this job (%s); wait for it, or name another output", holder)
}

// isDead reports whether a holder whose lock we acquired has ended: it released the lock, or we
// would see its lock.
func (h lockHolder) isDead(file *os.File) bool {
	return h.Host == "" || carriesLocks(file) || h.Boot != "" && h.Boot == bootID()
}

// awaitDeath returns nil once a holder on another host has shown no heartbeat for long
// enough by our own clock.
func awaitDeath(ctx context.Context, path string, holder lockHolder, notice func(string)) error {
	if notice == nil {
		return inUse(holder)
	}
	before, err := readBeat(path)
	if err != nil {
		return fault.JobRunning.Of(fault.Storage, "watch job lock: %w", err)
	}
	notice(fmt.Sprintf("the job was last run by %s; waiting %s to see whether it is still alive", holder, staleAfter))
	for deadline := time.Now().Add(staleAfter); time.Now().Before(deadline); {
		select {
		case <-time.After(min(time.Second, heartbeat/4)):
		case <-ctx.Done():
			return fault.Interrupted.New("stopped before anything was started")
		}
		switch now, err := readBeat(path); {
		case err != nil:
			return fault.JobRunning.Of(fault.Storage, "watch job lock: %w", err)
		case now != before:
			return inUse(holder)
		}
	}
	return nil
}

// beat is what changes in the file of a live holder.
type beat struct {
	holder  lockHolder
	touched int64 // nanoseconds
}

// readBeat reopens the file, which makes a network file system ask its server.
func readBeat(path string) (beat, error) {
	file, err := owned.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return beat{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return beat{}, err
	}
	return beat{readHolder(file), info.ModTime().UnixNano()}, nil
}

// confirm checks, where locks may not exclude, whether another process took over from
// the dead holder at the same time: the file names the last one.
func (l *lock) confirm(ctx context.Context, path string) error {
	select {
	case <-time.After(heartbeat / 5):
	case <-ctx.Done():
	}
	if now, err := readBeat(path); err != nil || now.holder.Nonce != l.holder.Nonce {
		return inUse(now.holder)
	}
	return nil
}

// write records who holds the lock and which temporary folder it is about to create.
func (l *lock) write(temp string) {
	l.holder.Temp = temp
	data, _ := json.Marshal(l.holder)
	_ = l.file.Truncate(0)
	_, _ = l.file.WriteAt(data, 0)
}

// UseTemp records the temporary folder that the job is about to create: a later one removes what a
// killed job has left.
func (f *Folder) UseTemp(path string) { f.lock.write(path) }

// Holder returns the process that holds the lock; "" if none does.
func (f *Folder) Holder() string {
	file, err := owned.Open(f.Join(lockFile), os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	holder := readHolder(file)
	if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return holder.String()
	}
	if holder.isDead(file) {
		return ""
	}
	// The holder is on another host. Only waiting could tell whether it is alive; for
	// display, a guess is enough.
	if info, err := file.Stat(); err != nil || time.Since(info.ModTime()).Abs() >= staleAfter {
		return ""
	}
	return holder.String()
}

func (h lockHolder) String() string {
	if h.Host == "" {
		return "still starting"
	}
	return fmt.Sprintf("pid %d on %s", h.PID, h.Host)
}

func readHolder(file *os.File) (holder lockHolder) {
	data := make([]byte, 4096)
	n, _ := file.ReadAt(data, 0)
	_ = json.Unmarshal(data[:n], &holder)
	return holder
}

func (l *lock) beat() {
	defer close(l.done)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			touched := unix.NsecToTimeval(now.UnixNano())
			_ = unix.Futimes(int(l.file.Fd()), []unix.Timeval{touched, touched})
		case <-l.stop:
			return
		}
	}
}

// release releases the lock; an empty file means that it is not held.
func (l *lock) release() {
	close(l.stop)
	<-l.done
	_ = l.file.Truncate(0)
	// Closing the file is not enough: a child process that is just starting still has
	// it open.
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	l.file.Close()
}

// bootID identifies the running kernel; "" if the system provides no ID.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}
