package lease

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
)

// childVariable makes a holder start a command that inherits its lease, and write its PID
// to this file.
const childVariable = "LEASE_TEST_CHILD"

func startChild(held *Held, path string) error {
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = held.Files()
	if err := child.Start(); err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Append(nil, child.Process.Pid), 0o666)
}

// When the process that took a lease exits, the command that inherited it keeps the lease.
// The lease names that command and ends with it.
func TestInheritedLeaseNamesItsHolder(t *testing.T) {
	f := open(t)
	pidFile := filepath.Join(t.TempDir(), "child")
	t.Setenv(childVariable, pidFile)
	holder := startHolder(t, f.path)
	text, err := os.ReadFile(pidFile)
	must(t, err)
	var child int
	_, err = fmt.Sscan(string(text), &child)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })

	if l := onlyLease(t, f); l.Ended || l.Holder() != fmt.Sprintf("process %d", holder.Process.Pid) {
		t.Errorf("while its taker lives: %+v", l)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	l := onlyLease(t, f)
	if want := fmt.Sprintf("process %d", child); !l.Ended || l.Holder() != want || !strings.Contains(l.String(), want+" of ") || len(l.Processes()) != 1 {
		t.Errorf("after its taker's end: %+v, held by %s", l, l.Holder())
	}
	if _, err := f.Acquire(t.Context(), ask(1, nil)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", child)) {
		t.Errorf("another got it, or heard of the wrong process: %v", err)
	}
	_ = syscall.Kill(child, syscall.SIGKILL)
	acquire(t, f, ask(1, func(r *Request) { r.Wait = time.Minute }))
}

func onlyLease(t *testing.T, f *Folder) Lease {
	t.Helper()
	list, err := f.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("leases %+v, %v", list, err)
	}
	return list[0]
}

// A PID that was reused, or that belongs to another PID namespace, does not identify the
// holder.
func TestHolderOfAnotherProcess(t *testing.T) {
	t.Parallel()
	self := proc.Self()
	if self.Start == 0 || self.Namespace == "" {
		t.Skip("SKIPPED: no /proc")
	}
	for name, test := range map[string]struct {
		start     uint64
		namespace string
		want      string
		ended     bool
	}{
		"this process":      {self.Start, self.Namespace, fmt.Sprintf("process %d", os.Getpid()), false},
		"used again":        {self.Start + 1, self.Namespace, fmt.Sprintf("a child of process %d", os.Getpid()), true},
		"another namespace": {self.Start, "pid:[1]", fmt.Sprintf("process %d in another PID namespace, on node7,", os.Getpid()), false},
	} {
		l := Lease{Owned: true, Identity: proc.Identity{PID: os.Getpid(), Start: test.start, Namespace: test.namespace}, Host: "node7"}
		if l.Ended = l.Identity.Ended(); l.Ended != test.ended || l.Holder() != test.want {
			t.Errorf("%s: ended %v, %q, want %q", name, l.Ended, l.Holder(), test.want)
		}
	}
}
