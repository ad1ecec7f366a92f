package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// folderLock keeps two jobs from one folder. On one host a file lock does that;
// network file systems may not carry it to another, so the lock's holder also
// writes who it is and touches the file now and then.
type folderLock struct {
	file   *os.File
	holder lockHolder
	stop   chan struct{}
	done   chan struct{}
}

type lockHolder struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Temp is its folder for sockets, which a killed holder leaves behind.
	Temp string `json:"temp,omitempty"`
}

const (
	heartbeat = 10 * time.Second
	// staleAfter is how long a holder on another host is believed without a
	// heartbeat: longer than any pause of a healthy one.
	staleAfter = 2 * time.Minute
)

func takeLock(path string) (*folderLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if errors.Is(err, unix.EISDIR) {
		return nil, fault.New(fault.Conflict, "the job folder is damaged: %w; remove that and run the same command again", err)
	}
	if err != nil {
		return nil, fault.New(kindOfDisk(err), "make job folder: %w", err)
	}
	holder, touched := readHolder(file)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "another gpurun is at this job (%s); wait for it, or name another output", holder)
		}
		return nil, fault.New(fault.Conflict, "lock job folder: %w", err)
	}
	if holder.elsewhere(touched) {
		file.Close()
		return nil, fault.New(fault.Conflict, "another gpurun is at this job (%s, alive %s ago); wait for it, or for %s after its end",
			holder, time.Since(touched).Round(time.Second), staleAfter)
	}
	host, _ := os.Hostname()
	if holder.Host == host && strings.HasPrefix(filepath.Base(holder.Temp), runDirPrefix) {
		_ = os.RemoveAll(holder.Temp) // it was killed: the living leave an empty file
	}
	l := &folderLock{
		file: file, holder: lockHolder{Host: host, PID: os.Getpid()},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	l.note("")
	go l.beat(path)
	return l, nil
}

// note writes down who holds the lock, and what it is about to make.
func (l *folderLock) note(temp string) {
	l.holder.Temp = temp
	data, _ := json.Marshal(l.holder)
	_ = l.file.Truncate(0)
	_, _ = l.file.WriteAt(data, 0)
}

// elsewhere reports whether a holder on another host lives, whose lock did not
// reach us.
func (h lockHolder) elsewhere(touched time.Time) bool {
	host, _ := os.Hostname()
	return h.Host != "" && h.Host != host && time.Since(touched) < staleAfter
}

func (h lockHolder) String() string {
	if h.Host == "" {
		return "starting just now"
	}
	return fmt.Sprintf("process %d on %s", h.PID, h.Host)
}

func readHolder(file *os.File) (holder lockHolder, touched time.Time) {
	data := make([]byte, 1024)
	n, _ := file.ReadAt(data, 0)
	_ = json.Unmarshal(data[:n], &holder)
	if info, err := file.Stat(); err == nil {
		touched = info.ModTime()
	}
	return holder, touched
}

func (l *folderLock) beat(path string) {
	defer close(l.done)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			_ = os.Chtimes(path, now, now)
		case <-l.stop:
			return
		}
	}
}

// release gives the lock back; the empty file says that nobody holds it.
func (l *folderLock) release() {
	close(l.stop)
	<-l.done
	_ = l.file.Truncate(0)
	// Not by closing it alone: a child of this process that is just being started
	// still has it open.
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	l.file.Close()
}
