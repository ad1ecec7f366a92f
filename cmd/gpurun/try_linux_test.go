package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// session is a program on a pseudo-terminal.
type session struct {
	*testing.T
	master, tty *os.File
	cmd         *exec.Cmd

	mu  sync.Mutex
	out strings.Builder
}

// startSession starts gpurun in the foreground of a new terminal of 80 columns.
func startSession(t *testing.T, dir string, args ...string) *session {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no pseudo-terminal: %v", err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skipf("SKIPPED: no pseudo-terminal: %v", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no pseudo-terminal: %v", err)
	}
	_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 24})
	s := &session{T: t, master: master, tty: tty, cmd: exec.Command(program, args...)}
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = dir, tty, tty, tty
	s.cmd.Env = append(os.Environ(), "GPURUN_TEST_COMMAND=1", "TERM=xterm", "NO_COLOR=")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.read()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		tty.Close()
	})
	return s
}

func (s *session) read() {
	p := make([]byte, 4096)
	for {
		n, err := s.master.Read(p)
		s.mu.Lock()
		s.out.Write(p[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *session) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// await waits until the terminal shows a text.
func (s *session) await(text string) {
	s.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(s.shown(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("the terminal does not show %q:\n%s", text, s.shown())
		}
	}
}

func (s *session) enter(text string) {
	s.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.Fatal(err)
	}
}

// status waits for the program and returns its exit status.
func (s *session) status() int {
	s.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case <-ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		s.Fatalf("the program does not end:\n%s", s.shown())
		return 0
	}
}

// kernelFolder has a kernel with these lines in process, and two records.
func kernelFolder(t *testing.T, body string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: no python3: Python kernels are not tried out")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernel.py": body,
		"in.jsonl":  `{"text":"first"}` + "\n" + `{"text":"second"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTryDebugger: breakpoint() works in process and in prepare, in a thread and in a
// process.
func TestTryDebugger(t *testing.T) {
	for name, body := range map[string]string{
		"process":            "def process(batch):\n    breakpoint()\n    return {'n': [len(t) for t in batch['text']]}",
		"prepare in threads": "def prepare(batch):\n    breakpoint()\n    return batch\ndef process(batch): return {'n': [len(t) for t in batch['text']]}",
		"prepare in processes": "def setup_prepare(ctx): pass\ndef prepare(batch):\n    breakpoint()\n    return batch['text']\n" +
			"def process(texts): return {'n': [len(t) for t in texts]}",
	} {
		t.Run(name, func(t *testing.T) {
			s := startSession(t, kernelFolder(t, body), "try", "kernel.py", "in.jsonl", "--gpus", "cpu:1")
			s.await("(Pdb) ")
			s.enter("p [text.upper() for text in batch['text']]\n")
			s.await("['FIRST', 'SECOND']")
			s.enter("continue\n")
			if status := s.status(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, s.shown())
			}
			s.await("\x1b[32m+ n ") // in color
		})
	}
}

// TestTryInterrupted: ^C ends a kernel at a breakpoint, and the terminal works as before.
func TestTryInterrupted(t *testing.T) {
	dir := kernelFolder(t, "import os, readline\ndef process(batch):\n    print('pid', os.getpid(), '.')\n    breakpoint()\n    return batch")
	s := startSession(t, dir, "try", "kernel.py", "in.jsonl", "--gpus", "cpu:1")
	s.await("(Pdb) ")
	var pid int
	if _, err := fmt.Sscanf(s.shown()[strings.Index(s.shown(), "pid "):], "pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	s.enter("\x03")
	if status := s.status(); status != 130 {
		t.Errorf("exit status %d:\n%s", status, s.shown())
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the interpreter still runs")
	}
	state, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil || state.Lflag&unix.ECHO == 0 || state.Lflag&unix.ICANON == 0 {
		t.Errorf("the terminal does not echo: %+v, %v", state, err)
	}
}
