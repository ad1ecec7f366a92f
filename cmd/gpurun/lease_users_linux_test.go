package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// otherUser runs gpurun as users without privileges, who need not exist, on a machine with a
// simulated GPU.
type otherUser struct{ program, stub, folder string }

func newOtherUser(t *testing.T) otherUser {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: not root: two users on one GPU are not tested")
	}
	stub := nvmlStub(t)
	if stub == "" {
		t.Skip("SKIPPED: no stub of the NVIDIA library: two users on one GPU are not tested")
	}
	dir, err := os.MkdirTemp("/tmp", "gpurun-users-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	u := otherUser{program: filepath.Join(dir, "gpurun"), stub: dir, folder: filepath.Join(dir, "leases")}
	// Folders of tests belong to root alone.
	copyFile(t, program, u.program)
	copyFile(t, filepath.Join(stub, "libnvidia-ml.so.1"), filepath.Join(dir, "libnvidia-ml.so.1"))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return u
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// makeFolder creates the lease folder with this owner and mode.
func (u otherUser) makeFolder(t *testing.T, owner int, mode os.FileMode) {
	t.Helper()
	_ = os.RemoveAll(u.folder)
	if err := os.Mkdir(u.folder, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(u.folder, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(u.folder, owner, owner); err != nil {
		t.Fatal(err)
	}
}

// job returns gpurun run as a user, in a folder of this user with an input of two records.
func (u otherUser) job(t *testing.T, id int, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(u.stub, "user-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte("{\"a\":1}\n{\"a\":2}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, id, id); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(u.program, append([]string{"run", "-q", "--gpus", "0", "in.jsonl", "-o", "out.jsonl"}, args...)...)
	cmd.Dir, stderr = dir, new(bytes.Buffer)
	cmd.Env = append(os.Environ(), "GPURUN_TEST_COMMAND=1", "LD_LIBRARY_PATH="+u.stub, "NVMLSTUB_GPUS=1",
		"GPURUN_LEASE_DIR="+u.folder, "GPURUN_JOBS_DIR="+filepath.Join(dir, "jobs"), "HOME="+dir, "XDG_STATE_HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	cmd.Stderr = stderr
	return cmd, stderr, dir
}

const firstUser, secondUser = 65534, 65533

// TestUsersLeaseFromEachOther: with the folder that the packages create, the job of one user
// keeps the GPU from another user's.
func TestUsersLeaseFromEachOther(t *testing.T) {
	u := newOtherUser(t)
	u.makeFolder(t, 0, 0o777|os.ModeSticky)
	first, said, dir := u.job(t, firstUser, "-k", "exec:touch begun; while [ ! -e "+u.stub+"/go ]; do sleep 0.02; done; cat")
	start(t, first)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			_ = first.Process.Kill()
			_ = first.Wait()
			t.Fatalf("the first job does not compute\n%s", said)
		}
	}
	second, refused, _ := u.job(t, secondUser, "-k", "echo", "--wait", "10ms")
	if err := second.Run(); err == nil || !strings.Contains(refused.String(), "GPU 0") || strings.Contains(refused.String(), "without leases") {
		t.Errorf("the second user's job: %v\n%s", err, refused)
	}
	if err := os.WriteFile(filepath.Join(u.stub, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the first user's job: %v\n%s", err, said)
	}
	if second, said, _ := u.job(t, secondUser, "-k", "echo"); second.Run() != nil || said.Len() > 0 {
		t.Errorf("the second user's job, when the GPU is free:\n%s", said)
	}
}

// TestUnusableLeaseFolderWarnsQuietJobs: a folder that belongs to another user gives no leases.
// The job runs, and --quiet does not hide that others may use its GPUs.
func TestUnusableLeaseFolderWarnsQuietJobs(t *testing.T) {
	u := newOtherUser(t)
	u.makeFolder(t, firstUser, 0o755)
	second, said, _ := u.job(t, secondUser, "-k", "echo")
	if err := second.Run(); err != nil || !strings.Contains(said.String(), "other jobs may use the same GPUs: the lease folder "+u.folder+" cannot be used") {
		t.Errorf("%v\n%s", err, said)
	}
	owner, said, _ := u.job(t, firstUser, "-k", "echo")
	if err := owner.Run(); err != nil || said.Len() > 0 {
		t.Errorf("the owner's job: %v\n%s", err, said)
	}
}
