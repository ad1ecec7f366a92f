package orchestrator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/crash"
	"github.com/gpurun/gpurun/internal/disktest"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// TestDiskFull: the job stops and says why, and the same command resumes it once there
// is room again, wherever the disk filled up.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		free int64 // free bytes at the start
	}{
		{"nothing at all", 0},
		{"a little", 24 << 10},
		{"some parts", 64 << 10},
		{"nearly all", 160 << 10},
	}
	half := rand.IntN(2) // of the pairs; make test-all runs both
	for i, test := range tests {
		for k, form := range []string{"file", "parts", "work folder", "compressed"} { // what is on the disk
			if (i+k)%2 != half && os.Getenv("GPURUN_TEST_ALL") == "" {
				continue
			}
			t.Run(test.name+" "+form, func(t *testing.T) {
				t.Parallel()
				want := big.undisturbed(t)
				disk := disktest.Mount(t, "4m")
				_, c := big.start(t)
				switch form {
				case "file":
					c.Output.Path = filepath.Join(disk, "out.jsonl")
				case "parts":
					c.Output.Path, c.Output.PartBytes = filepath.Join(disk, "out")+"/", 20_000
				case "compressed":
					c.Output.Path = filepath.Join(disk, "out.jsonl.zst")
					c = orchestrator.WithUnitBytes(c, 10_000)
				case "work folder":
					c.Resume.WorkDir = disk
				}
				ballast := filepath.Join(disk, "ballast")
				fill(t, ballast, test.free)
				fulls := 0
				for ; ; fulls++ {
					report, err := run(t, c)
					if err == nil {
						break
					}
					wantFault(t, err, fault.Storage, "no space left on device")
					if exists(c.Output.Path) || fulls > 10 {
						t.Fatalf("after %d times: %+v", fulls, report)
					}
					if fulls == 0 { // nothing changed
						continue
					}
					giveRoom(t, ballast, (64<<10)<<(2*fulls))
				}
				if fulls == 0 && i < 3 {
					t.Error("the disk was never full: this test shows nothing")
				}
				if outputText(t, c) != want["out.jsonl"] {
					t.Error("differs from an undisturbed run")
				}
				_ = os.Remove(ballast)
				for _, name := range tree(disk) {
					if strings.Contains(name, "partial") || strings.Contains(name, ".tmp") || strings.Contains(name, "/parts") {
						t.Errorf("left: %s", name)
					}
				}
			})
		}
	}
}

// big writes some 230 KB.
var big = &variant{name: "big", records: 4000, change: func(_ jobDir, c *orchestrator.Config) {
	c.Batching.Size, c.Kernel.Config, c.Resume.Checkpoint = 50, []byte(`{"Milliseconds":1}`), 10*time.Millisecond
}}

// fill leaves only this much free on a disk.
func fill(t *testing.T, ballast string, free int64) {
	t.Helper()
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	block, size := make([]byte, 4096), int64(0)
	for {
		n, err := file.Write(block)
		size += int64(n)
		if err != nil {
			break
		}
	}
	if err := file.Truncate(size - free); err != nil {
		t.Fatal(err)
	}
}

func giveRoom(t *testing.T, ballast string, more int64) {
	t.Helper()
	info, err := os.Stat(ballast)
	if err == nil {
		err = os.Truncate(ballast, max(0, info.Size()-more))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readOnly makes what is reached through a path read-only for later opens: a file
// system with files open for writing refuses to be remounted, and so does a path through which one was
// opened just now.
func readOnly(path string) (writable func(), err error) {
	writable = func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) }
	for range 100 {
		if err := syscall.Mount(path, path, "", syscall.MS_BIND, ""); err != nil {
			return func() {}, err
		}
		if err = syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != syscall.EBUSY {
			break
		}
		writable()
	}
	return writable, err
}

// TestReadOnlyDisk: a file system that turns read-only midway stops the job; once
// writable again, the job resumes.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	v := derive("errors apart")
	d, c := v.start(t)
	writable, err := readOnly(d.path)
	writable()
	if err != nil {
		t.Skipf("NOT TESTED: a read-only file system: %v", err)
	}
	watched := c
	watch(&watched, func(name string, passing int, _ orchestrator.Event) {
		if name == "chunk_done" && passing == 4 {
			writable, err = readOnly(jobFolder(c) + "/parts")
		}
	})
	_, stopped := run(t, watched)
	writable()
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, stopped, fault.Storage, "read-only file system")
	if writable, err = readOnly(d.path); err != nil {
		t.Fatal(err)
	}
	_, stopped = run(t, c)
	writable()
	wantFault(t, stopped, fault.Storage, "read-only file system")
	resumes(t, d, c)
	checkFinished(t, d, c, v.undisturbed(t), "")
}

// TestRemovedFolder: without its folder an interrupted job starts over.
func TestRemovedFolder(t *testing.T) {
	t.Parallel()
	v := derive("errors apart")
	d, c := v.start(t)
	interrupt(t, c, "chunk_done", 3)
	if err := os.RemoveAll(jobFolder(c)); err != nil {
		t.Fatal(err)
	}
	if report := mustRun(t, d, c); report.Resumed != 0 {
		t.Errorf("report: %+v", report)
	}
	checkFinished(t, d, c, v.undisturbed(t), "")
}

// TestOtherFileSystem: the work folder is on another file system than the output, so a
// rename is a copy, and a kill hits in the middle of it.
func TestOtherFileSystem(t *testing.T) {
	t.Parallel()
	for i, point := range []string{"complete", "copied", "moved", "renamed:3", "complete", "copied:2", "exchanged", "moved:2"} {
		v := derive("errors apart")
		if i >= 4 {
			v = derive("parts")
		}
		t.Run(point+" "+v.name, func(t *testing.T) {
			t.Parallel()
			want := v.undisturbed(t)
			d, c := v.start(t)
			c.Resume.WorkDir = disktest.Mount(t, "4m")
			mark := fmt.Sprintf("otherfs-%d-%d", i, os.Getpid())
			temp := shortTemp(t)
			if end := startDriver(t, driverOf(t, c), mark, crash.Variable+"="+point, "TMPDIR="+temp).wait(t); !end.killed {
				t.Fatalf("ended: %s", end)
			}
			awaitGone(t, mark)
			if end := startDriver(t, driverOf(t, c), mark, "TMPDIR="+temp).wait(t); !end.done() {
				t.Fatalf("ended: %s", end)
			}
			for name, data := range want {
				if name != "failures.jsonl" && d.read(name) != data {
					t.Errorf("%s differs", name)
				}
			}
			for _, name := range append(tree(d.path), tree(c.Resume.WorkDir)...) {
				if strings.Contains(name, "partial") || strings.HasSuffix(name, "journal") {
					t.Errorf("left: %s", name)
				}
			}
			if left := tree(temp); len(left) > 0 {
				t.Errorf("left in the temporary folder: %v", left)
			}
		})
	}
}
