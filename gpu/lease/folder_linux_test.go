package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/files"
)

// holderVariable makes the test binary a program that holds the one GPU of the
// folder it names until it is killed.
const holderVariable = "LEASE_TEST_HOLDER"

func hold() int {
	f, err := Open(os.Getenv(holderVariable))
	var held *Held
	if err == nil {
		held, err = f.Acquire(context.Background(), ask(1, func(r *Request) { r.Name = "holder" }))
	}
	if path := os.Getenv(childVariable); path != "" && err == nil {
		err = startChild(held, path)
	}
	fmt.Println(err)
	select {} // killed by the test, or when the test exits
}

// startHolder starts a holder and waits until it has the lease.
func startHolder(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"="+dir)
	cmd.SysProcAttr = deathSignal()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd
}

// A lease is free once its owner is dead, however it died, and not before.
func TestDeadOwner(t *testing.T) {
	f := open(t)
	holder := startHolder(t, f.path)
	if _, err := f.Acquire(t.Context(), ask(1, nil)); err == nil {
		t.Fatal("taken from a living owner")
	}
	list, err := f.List()
	if err != nil || len(list) != 1 || list[0].PID != holder.Process.Pid || list[0].Name != "holder" {
		t.Errorf("list: %+v %v", list, err)
	}
	_ = holder.Process.Signal(syscall.SIGSTOP) // stopped, not dead
	if _, err := f.Acquire(t.Context(), ask(1, nil)); err == nil {
		t.Fatal("taken from a stopped owner")
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	acquire(t, f, ask(1, nil))
	events := f.History(10)
	seen := false
	for _, e := range events {
		seen = seen || e.Event == OwnerDied && e.Lease.Name == "holder"
	}
	if !seen {
		t.Errorf("the history does not know of the death: %+v", events)
	}
}

// A child that inherits the file keeps an owned lease.
func TestInherited(t *testing.T) {
	f := open(t)
	held := acquire(t, f, ask(1, nil))
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = held.Files()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	held.files[0].Close() // as if this process died
	if list, err := f.List(); err != nil || len(list) != 1 {
		t.Errorf("while the child lives: %v %v", list, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if list, err := f.List(); err != nil || len(list) != 0 {
		t.Errorf("after its death: %v %v", list, err)
	}
}

func TestExpiry(t *testing.T) {
	f := open(t)
	held := acquire(t, f, ask(1, func(r *Request) { r.Owned, r.TTL = false, time.Hour }))
	held.Detach()
	now := time.Now()
	for after, want := range map[time.Duration]string{0: "", 59 * time.Minute: "", 61 * time.Minute: Expired} {
		all, err := f.read(now.Add(after))
		if err != nil || len(all) != 1 || all[0].ended != want {
			t.Errorf("after %s: %+v %v, want %q", after, all, err, want)
		}
	}
}

// Files that may be found in the folder.
func TestDamage(t *testing.T) {
	key := uuid(0)
	for name, test := range map[string]struct {
		damage func(t *testing.T, f *Folder)
		taken  bool // the GPU is not available
	}{
		"empty":         {damage: write(key+"~1.lease", "")},
		"half a lease":  {damage: write(key+"~1.lease", `{"id":"1","na`)},
		"not a lease":   {damage: write(key+"~1.lease", `[]`)},
		"owner exited":  {damage: write(key+"~1.lease", `{"id":"1","name":"a","gpu":"`+key+`","owned":true,"exclusive":true}`)},
		"no owner":      {damage: write(key+"~1.lease", `{"id":"1","name":"a","gpu":"`+key+`","exclusive":true}`), taken: true},
		"expired":       {damage: write(key+"~1.lease", `{"id":"1","name":"a","gpu":"`+key+`","exclusive":true,"expires":"2001-01-01T00:00:00Z"}`)},
		"another GPU's": {damage: write(uuid(7)+"~1.lease", `{"id":"1","name":"a","gpu":"`+uuid(7)+`","exclusive":true}`)},
		"never named":   {damage: write(".new-1", `{"id":"1"`)},
		"damaged, but held": {taken: true, damage: func(t *testing.T, f *Folder) {
			held := acquire(t, f, ask(1, nil))
			if err := held.files[0].Truncate(3); err != nil {
				t.Fatal(err)
			}
		}},
		"a pipe":   {damage: func(t *testing.T, f *Folder) { must(t, syscall.Mkfifo(filepath.Join(f.path, key+"~1.lease"), 0o666)) }},
		"a folder": {damage: func(t *testing.T, f *Folder) { must(t, os.Mkdir(filepath.Join(f.path, key+"~1.lease"), 0o777)) }},
		"a link": {damage: func(t *testing.T, f *Folder) {
			must(t, os.Symlink("/etc/passwd", filepath.Join(f.path, key+"~1.lease")))
		}},
		"no end": {damage: func(t *testing.T, f *Folder) {
			write(key+"~1.lease", "{")(t, f)
			must(t, os.Truncate(filepath.Join(f.path, key+"~1.lease"), 1<<40))
		}},
		"odd history": {damage: write(fmt.Sprintf("history-%d.jsonl", os.Getuid()), "no JSON\n{}\n")},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			test.damage(t, f)
			held, err := f.Acquire(t.Context(), ask(1, nil))
			held.Release()
			if (err != nil) != test.taken {
				t.Errorf("got %v, want a refusal: %v", err, test.taken)
			}
			f.History(10)
		})
	}
}

func write(name, text string) func(*testing.T, *Folder) {
	return func(t *testing.T, f *Folder) {
		must(t, os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o666))
	}
}

// The error for an unusable folder names it, the reason and what to do.
func TestUnusable(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(t *testing.T, dir string) // before Open
		text   string
		kind   fault.Kind
	}{
		"a file": {func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o666)) }, "it is not a folder", fault.Usage},
		"open to all": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir, 0o777))
			must(t, os.Chmod(dir, 0o777))
		}, "chmod +t", fault.Usage},
		"a link": {func(t *testing.T, dir string) { must(t, os.Symlink("/tmp", dir)) }, "symbolic link", fault.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "leases")
			test.damage(t, dir)
			f, err := Open(dir)
			if err == nil {
				_, err = f.Acquire(t.Context(), ask(1, nil))
			}
			var unusable *UnusableError
			if !errors.As(err, &unusable) || fault.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A process that does not release the folder's lock delays others no longer than they are
// willing to wait.
func TestLockKept(t *testing.T) {
	f := open(t)
	unlock, err := f.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	_, err = f.Acquire(t.Context(), ask(1, nil))
	want := fmt.Sprintf("no GPU for test: process %d of %s does not release the lock of the lease folder %s", os.Getpid(), files.UserName(os.Getuid()), f.path)
	if fault.KindOf(err) != fault.NoDevice || errors.As(err, new(*UnusableError)) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A process that waits for GPUs reports that it waits for the lock, and takes it when it is
// released.
func TestWaitForLockIsReported(t *testing.T) {
	f := open(t)
	unlock, err := f.lock(t.Context())
	must(t, err)
	release := sync.OnceFunc(unlock)
	defer release()
	var why string
	acquire(t, f, ask(1, func(r *Request) {
		r.Wait = time.Hour
		r.Waiting = func(text string) { why = text; release() }
	}))
	if !strings.Contains(why, "does not release the lock") {
		t.Errorf("it said %q", why)
	}
}

// Removing files from the folder does not give its lock to a second process: whoever created
// a file may remove it.
func TestLockIsNoFile(t *testing.T) {
	f := open(t)
	unlock, err := f.lock(t.Context())
	must(t, err)
	defer unlock()
	files, err := filepath.Glob(filepath.Join(f.path, "*"))
	must(t, err)
	for _, path := range files {
		must(t, os.Remove(path))
	}
	if held, err := f.Acquire(t.Context(), ask(1, nil)); err == nil {
		held.Release()
		t.Error("two processes have the lock")
	}
}

// TestLockedHistoryDelaysNoLease: another user who locks a history does not delay the leases of others.
func TestLockedHistoryDelaysNoLease(t *testing.T) {
	f := open(t)
	fillHistory(t, f, 100)
	history, err := os.Open(f.historyPath())
	must(t, err)
	defer history.Close()
	must(t, syscall.Flock(int(history.Fd()), syscall.LOCK_EX))
	began := time.Now()
	acquire(t, f, ask(1, nil)).Release()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
	if got := statistics(t, f); got.Released != 101 {
		t.Errorf("got %+v", got)
	}
}

// A folder belongs to root or to the user: any other owner could remove every lease in it.
func TestFolderOfAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can give a folder to another user")
	}
	dir := shared(t)
	must(t, os.Chown(dir, 65534, 65534))
	for name, open := range map[string]func(string) (*Folder, error){"Open": Open, "OpenExisting": OpenExisting} {
		_, err := open(dir)
		var unusable *UnusableError
		if !errors.As(err, &unusable) || !strings.Contains(err.Error(), "it belongs to "+files.UserName(65534)) || !strings.Contains(err.Error(), "mkdir -m 1777 /run/gpurun") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Another user's folder and files; only root can run this.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can be two users")
	}
	dir := shared(t)
	f, err := Open(dir)
	must(t, err)
	acquire(t, f, ask(2, func(r *Request) { r.Name = "roots" }))
	reserved := acquire(t, f, ask(2, func(r *Request) { r.Name, r.Owned = "reserved", false }))
	reserved.Detach()

	program := filepath.Join(shared(t), "program") // other users cannot enter the test binary's folder
	binary, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(program, binary, 0o755))
	say := func(script string) string {
		t.Helper()
		cmd := exec.Command(program, "-test.run", "^TestAsAnother$", "-test.v")
		cmd.Env = append(os.Environ(), "LEASE_TEST_DIR="+dir, "LEASE_TEST_DO="+script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = "/"
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := say("list"); !strings.Contains(out, "LIST roots reserved") {
		t.Errorf("another user sees %s", out)
	}
	if out := say("acquire"); !strings.Contains(out, "is held by roots") {
		t.Errorf("another user gets %s", out)
	}
	if out := say("deallocate"); !strings.Contains(out, "belongs to root: only that user can release it") {
		t.Errorf("another user gives back %s", out)
	}
	must(t, os.Chmod(dir, 0o755))
	if out := say("acquire"); !strings.Contains(out, "it belongs to root, mode 755") {
		t.Errorf("of a folder that is root's own: %s", out)
	}
}

// TestAsAnother is run by TestOtherUsers as another user.
func TestAsAnother(t *testing.T) {
	dir := os.Getenv("LEASE_TEST_DIR")
	if dir == "" {
		return // TestOtherUsers runs it
	}
	f, err := Open(dir)
	if err != nil {
		t.Log(err)
		return
	}
	switch os.Getenv("LEASE_TEST_DO") {
	case "list":
		list, err := f.List()
		names := "LIST"
		for _, l := range list {
			names += " " + l.Name
		}
		t.Log(names, err)
	case "acquire":
		_, err := f.Acquire(t.Context(), ask(2, nil))
		t.Log(err)
	case "deallocate":
		_, err := f.Deallocate(t.Context(), "reserved", "")
		t.Log(err)
	}
}

// shared is a folder that other users can reach.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "leases-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	return dir
}

// A full disk: a clear error, and no files left behind.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can make a small disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4k,nr_inodes=8"); err != nil {
		t.Skipf("SKIPPED: no small disk: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	f, err := Open(dir)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 4096), 0o666))
	_, err = f.Acquire(t.Context(), ask(1, nil))
	if fault.KindOf(err) != fault.Storage || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*lease*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	must(t, os.Remove(filepath.Join(dir, "fill")))
	held, err := f.Acquire(t.Context(), ask(1, nil))
	must(t, err)
	held.Release()
}

// TestLeaseFilesHaveNoCommandLine: all users may read them, and a command line may contain
// secrets.
func TestLeaseFilesHaveNoCommandLine(t *testing.T) {
	f := open(t)
	held, err := f.Acquire(t.Context(), ask(1, nil))
	must(t, err)
	defer held.Release()
	entries, err := os.ReadDir(f.path)
	must(t, err)
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(f.path, entry.Name()))
		must(t, err)
		if strings.Contains(string(data), os.Args[0]) || strings.Contains(string(data), `"command"`) {
			t.Errorf("%s holds %s", entry.Name(), data)
		}
	}
}
