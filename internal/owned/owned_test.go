package owned

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A file counts as alive exactly as long as a process has it open and locked; reading it
// changes nothing.
func TestLife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := Create(path, []byte("hello"), 0o600, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if data, lives, err := Read(path); string(data) != "hello" || !lives || err != nil {
			t.Errorf("%q %v %v", data, lives, err)
		}
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = []*os.File{file}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	file.Close()
	if _, lives, _ := Read(path); !lives {
		t.Error("dead although a child has it")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	for range 3 {
		if _, lives, err := Read(path); lives || err != nil {
			t.Errorf("lives: %v, %v", lives, err)
		}
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := Create(path, nil, 0o600, true)
	if err != nil {
		t.Fatal(err)
	}
	if !Remove(path, file) {
		t.Error("it was not there")
	}
	if _, _, err := Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	_ = os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	_ = syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666)
	_ = os.Mkdir(filepath.Join(dir, "folder"), 0o777)
	for _, name := range []string{"link", "pipe", "folder"} {
		if _, _, err := Read(filepath.Join(dir, name)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sweep removes old files of killed writers, and keeps files still being written.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{asidePrefix + "old", asidePrefix + "new", "named"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * asideAge)
	for _, name := range []string{asidePrefix + "old", "named"} {
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(dir, time.Now())
	left, _ := os.ReadDir(dir)
	if len(left) != 2 || left[0].Name() != asidePrefix+"new" || left[1].Name() != "named" {
		t.Errorf("left: %v", left)
	}
}
