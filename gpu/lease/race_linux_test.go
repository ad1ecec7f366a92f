package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpurun/gpurun/internal/owned"
	"golang.org/x/sys/unix"
)

const (
	racers    = 50
	raceGPUs  = 8
	dyingFlag = 4 // PF_EXITING of a Linux process
)

// racerVariable holds the folder in which the test binary races.
const racerVariable = "LEASE_TEST_RACER"

// track is memory that all racers share: who holds which GPU, how many rounds remain and
// how many are finished, and whether two racers ever held the same GPU.
type track struct {
	holder  [raceGPUs]atomic.Int64 // PID, 0 for none
	left    atomic.Int64
	ended   atomic.Int64
	clashes atomic.Int64
	refused atomic.Int64
}

func openTrack(path string) (*track, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int(unsafe.Sizeof(track{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*track)(unsafe.Pointer(&data[0])), nil
}

// enter marks a GPU as held by this process. A previous holder must be dead or dying, since
// its lease was free.
func (t *track) enter(gpu int) {
	for {
		before := t.holder[gpu].Load()
		if before != 0 && !dying(int(before)) {
			t.clashes.Add(1)
			fmt.Fprintf(os.Stderr, "process %d and process %d both hold GPU %d\n", os.Getpid(), before, gpu)
		}
		if t.holder[gpu].CompareAndSwap(before, int64(os.Getpid())) {
			return
		}
	}
}

// leave clears the mark; no other process may have set it meanwhile.
func (t *track) leave(gpu int) {
	if !t.holder[gpu].CompareAndSwap(int64(os.Getpid()), 0) {
		t.clashes.Add(1)
	}
}

// dying reports whether a process has exited, or is past the point where the kernel closes
// its files.
func dying(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	return strings.Contains("ZX", fields[0]) || flags&dyingFlag != 0
}

// race is one racer: it takes a GPU, holds it for a moment and releases it, until no round
// remains. Some racers die while holding it, and some hold two.
func race() int {
	dir := os.Getenv(racerVariable)
	t, err := openTrack(filepath.Join(dir, "track"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f, err := Open(filepath.Join(dir, "leases"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for t.left.Add(-1) >= 0 {
		held, err := f.Acquire(context.Background(), ask(raceGPUs, func(r *Request) {
			r.Wait, r.Number = 5*time.Minute, 1+rand.IntN(2)
		}))
		if err != nil {
			t.refused.Add(1)
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		for _, l := range held.Leases() {
			t.enter(l.Index)
		}
		time.Sleep(rand.N(3 * time.Millisecond))
		if rand.IntN(10) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		for _, l := range held.Leases() {
			t.leave(l.Index)
		}
		held.Release()
		t.ended.Add(1)
	}
	return 0
}

// TestRace: processes race for GPUs and are killed at random moments; two never hold the
// same GPU, and no GPU is lost. LEASE_RACE_ROUNDS=1000 is the long form.
func TestRace(t *testing.T) {
	rounds := 200
	if text := os.Getenv("LEASE_RACE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		rounds = 60
	}
	dir := t.TempDir()
	track, err := openTrack(filepath.Join(dir, "track"))
	must(t, err)
	track.left.Store(int64(rounds))
	g := &ground{t: t, dir: dir, ended: make(chan *exec.Cmd, racers)}
	for range racers {
		g.start()
	}
	g.run(track)
	t.Logf("%d rounds ended in good order, %d racers were killed from outside, %d in all died", track.ended.Load(), g.shot, g.died)
	if track.clashes.Load() > 0 || track.refused.Load() > 0 {
		t.Errorf("%d times two held one GPU, %d times none was to be had", track.clashes.Load(), track.refused.Load())
	}
	if track.ended.Load() == 0 || g.died == 0 {
		t.Error("no process raced, or none died: this proves nothing")
	}
	f, err := Open(filepath.Join(dir, "leases"))
	must(t, err)
	held, err := f.Acquire(t.Context(), ask(raceGPUs, func(r *Request) { r.Each, r.Wait = true, 10*time.Second }))
	if err != nil || len(held.Leases()) != raceGPUs {
		t.Errorf("not all GPUs came back: %v", err)
	}
	held.Release()
	// A file that a racer was writing when it died has a temporary name and is removed when
	// it is old.
	if left, err := owned.Names(filepath.Join(dir, "leases"), fileSuffix); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// ground runs the race: it starts racers, kills some and replaces them.
type ground struct {
	t      *testing.T
	dir    string
	living []*exec.Cmd
	ended  chan *exec.Cmd
	shot   int
	died   int
}

func (g *ground) start() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), racerVariable+"="+g.dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.living = append(g.living, cmd)
	go func() { _ = cmd.Wait(); g.ended <- cmd }()
}

// run kills a racer from time to time until all rounds have begun, and waits for the last.
func (g *ground) run(track *track) {
	for len(g.living) > 0 {
		select {
		case cmd := <-g.ended:
			g.remove(cmd)
			if killed(cmd) {
				g.died++
				if track.left.Load() > 0 {
					g.start()
				}
			}
		case <-time.After(rand.N(60 * time.Millisecond)):
			if track.left.Load() > 0 {
				_ = g.living[rand.IntN(len(g.living))].Process.Kill()
				g.shot++
			}
		}
	}
}

func (g *ground) remove(cmd *exec.Cmd) {
	for i, one := range g.living {
		if one == cmd {
			g.living = append(g.living[:i], g.living[i+1:]...)
			return
		}
	}
}

func killed(cmd *exec.Cmd) bool {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}
