package template

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/resources"
)

// Warm templates outlive the job that has started them. One guard of each user has them. It exits
// when the last of them has ended.
const (
	// mostWarm limits their number, and warmShare their memory: what the host or the container has for
	// processes, divided by it.
	mostWarm  = 4
	warmShare = 4
	// warmTick is how often the guard looks for templates whose time is over.
	warmTick = 500 * time.Millisecond
	// unusedGuard is how long a guard without templates waits: a job looks for the guard before it
	// plans, and asks for a child afterwards.
	unusedGuard = 30 * time.Second
)

// folder returns where the guard of warm templates is found: in the user's runtime folder, if there is
// one, else in the folder for temporary files.
func folder() string {
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); runtime != "" && owned(os.Stat(runtime)) { // sudo may keep the variable
		return filepath.Join(runtime, "gpurun")
	}
	name := "gpurun-" + strconv.Itoa(os.Geteuid())
	if dir := filepath.Join(os.TempDir(), name); len(dir) <= longestFolder {
		return dir
	}
	return filepath.Join("/tmp", name)
}

// longestFolder is how long the name of a folder may be so that a socket in it has a valid one.
const longestFolder = 80

// owned reports whether a file belongs to this user.
func owned(info os.FileInfo, err error) bool {
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// makeFolder makes the folder of the guard of warm templates, which only this user can enter.
func makeFolder() (string, error) {
	dir := folder()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, checkFolder(dir)
}

func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !owned(info, nil) {
		return fmt.Errorf("%s is not a folder that only you can enter", dir)
	}
	return nil
}

// socketName returns the name of the guard's socket. Containers that share the folder, and jobs of a
// cluster, whose limits the guard has, have guards of their own.
func socketName() string {
	place := sha256.New()
	for _, namespace := range []string{"mnt", "pid"} {
		link, _ := os.Readlink("/proc/self/ns/" + namespace)
		fmt.Fprintln(place, link)
	}
	fmt.Fprintln(place, os.Getenv("SLURM_JOB_ID"))
	return "warm-" + hex.EncodeToString(place.Sum(nil)[:6])
}

// KeepWarm returns the socket of the guard of warm templates, and starts the guard if there is none.
// binary must call [ServeWarm] with these arguments.
func KeepWarm(binary string, arguments ...string) (socket string, err error) {
	dir, err := makeFolder()
	if err != nil {
		return "", err
	}
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	socket = filepath.Join(dir, socketName())
	if conn, err := dial(socket); err == nil {
		conn.Close()
		return socket, nil
	}
	_ = os.Remove(socket)
	listening, err := listen(socket)
	if err != nil {
		return "", err
	}
	defer listening.Close()
	command := exec.Command(binary, arguments...)
	command.Dir, command.ExtraFiles = "/", []*os.File{listening}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal that closes does not end it
	if err := command.Start(); err != nil {
		return "", err
	}
	proc.Release(command.Process.Pid)
	return socket, command.Process.Release()
}

// lock makes sure that one process at a time starts or ends the guard.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// ServeWarm is the life of the guard of warm templates. It returns the exit status.
func ServeWarm() int {
	proc.SurviveStopSignals()
	closeInherited()
	proc.CloseOnExec(listenDescriptor)
	listener, err := begin()
	if err != nil {
		return 2
	}
	cpu := make(map[string]time.Duration)
	g := newGuard(func(u usage) { cpu[u.Owner] += u.CPU })
	g.spent = cpu
	defer proc.ReapOrphans()()
	g.find()
	go g.accept(privately{listener, g.find})
	for {
		time.Sleep(warmTick)
		g.expire(func(t *template) bool { return time.Since(t.last) > t.keep })
		if g.quit() {
			return 0
		}
	}
}

// closeInherited closes what the caller of gpurun has left open, such as the lock of a script. The
// descriptors of Go's runtime refer to no file.
func closeInherited() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		link, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && number > listenDescriptor && !strings.HasPrefix(link, "anon_inode:") {
			_ = syscall.Close(number)
		}
	}
}

// find notes that a process has found the guard.
func (g *guard) find() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found = time.Now()
}

// unused reports whether the guard can end. The caller must hold g.mu.
func (g *guard) unused() bool {
	return len(g.templates) == 0 && len(g.children) == 0 && time.Since(g.found) > unusedGuard
}

// quit ends an unused guard.
func (g *guard) quit() bool {
	g.mu.Lock()
	unused := g.unused()
	g.mu.Unlock()
	if !unused {
		return false
	}
	dir := folder()
	unlock, err := lock(dir)
	if err != nil {
		unlock = func() {} // the folder was removed
	}
	defer unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.unused() { // a process has found it meanwhile
		return false
	}
	_ = os.Remove(filepath.Join(dir, socketName()))
	g.ended = true
	return true
}

// privately accepts connections of this user's processes only.
type privately struct {
	net.Listener
	find func()
}

func (p privately) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		p.find()
		if err != nil || isOurs(conn.(*net.UnixConn)) {
			return conn, err
		}
		conn.Close()
	}
}

func isOurs(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return false
	}
	return int(peer.Uid) == os.Geteuid()
}

// expire ends the templates that nothing uses and for which over returns true.
func (g *guard) expire(over func(*template) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, t := range g.templates {
		if t.users == 0 && over(t) {
			g.remove(key, t)
		}
	}
}

// remove ends a template, which runs its exit handlers. The caller must hold g.mu.
func (g *guard) remove(key string, t *template) {
	delete(g.templates, key)
	t.conn.Close()
	go t.process.End(exitGrace)
}

// makeRoom ends warm templates, the one that was used longest ago first, until there is room for
// another. The caller must hold g.mu.
func (g *guard) makeRoom() {
	for {
		var used uint64
		oldest := ""
		for key, t := range g.templates {
			used += memoryOf(t.process.Pid())
			if t.users == 0 && (oldest == "" || t.last.Before(g.templates[oldest].last)) {
				oldest = key
			}
		}
		if oldest == "" || len(g.templates) < mostWarm && used < (used+resources.System{}.Available())/warmShare {
			return
		}
		g.remove(oldest, g.templates[oldest])
	}
}

// memoryOf returns the resident memory of a process.
func memoryOf(pid int) uint64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// warm lists the templates, and ends those without children if stop is set.
func (g *guard) warm(stop bool) []Warm {
	g.mu.Lock()
	list := []Warm{}
	for _, t := range g.templates {
		w := Warm{PID: t.process.Pid(), About: t.about, Children: t.users, Memory: memoryOf(t.process.Pid())}
		if t.users == 0 {
			w.Left = max(0, t.keep-time.Since(t.last))
		}
		list = append(list, w)
	}
	g.mu.Unlock()
	if stop {
		g.expire(func(*template) bool { return true })
		g.mu.Lock()
		g.found = time.Time{} // nor does the guard wait
		g.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Warm) int { return a.PID - b.PID })
	return list
}

// usage returns the CPU time of an owner's exited children, and forgets it.
func (g *guard) usage(owner string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer delete(g.spent, owner)
	return g.spent[owner]
}

// ListWarm returns this user's warm templates. With stop, it ends those that no job uses.
func ListWarm(stop bool) ([]Warm, error) {
	answer, err := askWarm(order{List: !stop, Stop: stop})
	return answer.Warm, err
}

// WarmGuard returns the pid of the guard of this user's warm templates, 0 if there is none.
func WarmGuard() int {
	answer, _ := askWarm(order{List: true})
	return answer.PID
}

// WarmUsage returns the CPU time of exited children of warm templates, by their owner.
func WarmUsage(owner string) time.Duration {
	answer, _ := askWarm(order{Used: owner})
	return answer.CPU
}

// askWarm asks the guard of warm templates. Without one, the answer is empty.
func askWarm(o order) (answer report, err error) {
	dir := folder()
	if err := checkFolder(dir); errors.Is(err, os.ErrNotExist) {
		return answer, nil
	} else if err != nil {
		return answer, err
	}
	conn, err := dial(filepath.Join(dir, socketName()))
	if err != nil {
		return answer, nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if err := send(conn, o); err != nil {
		return answer, err
	}
	files, err := receive(conn, &answer)
	closeAll(files)
	return answer, err
}
