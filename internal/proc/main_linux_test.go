package proc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/internal/proctest"
)

// roleVariable makes the test binary act as one of the child processes below.
const roleVariable = "GPURUN_TEST_PROC"

// roles are the child processes that the test binary can act as.
var roles = map[string]func(){
	"sleep": func() { time.Sleep(time.Hour) },
	// A chain: each starts the next with DieWithParent, and prints its pid.
	"chain 2": func() { link("chain 1") },
	"chain 1": func() { link("chain 0") },
	"chain 0": func() { fmt.Println(os.Getpid()); time.Sleep(time.Hour) },
	// It holds the process that its argument names until its input ends.
	"tracer": func() {
		pid, _ := strconv.Atoi(os.Args[1])
		if _, err := proctest.Seize(pid); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	// Its children can be terminated by the signals that it survives itself.
	"survivor": func() {
		SurviveStopSignals()
		for _, name := range []string{"TERM", "INT", "HUP", "PIPE"} {
			err := exec.Command("sh", "-c", "kill -"+name+" $$; sleep 0.1").Run()
			fmt.Println(name, err)
		}
	},
	"stubborn": func() {
		SurviveStopSignals()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE} {
			_ = syscall.Kill(os.Getpid(), s)
		}
		time.Sleep(20 * time.Millisecond)
		fmt.Println("still here")
	},
}

func link(next string) {
	fmt.Println(os.Getpid())
	if _, err := Start(role(next, os.Stdout)); err != nil {
		panic(err)
	}
	time.Sleep(time.Hour)
}

// role returns the command that runs the test binary in a role.
func role(name string, stdout *os.File) Command {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Command{Path: path, Env: append(os.Environ(), roleVariable+"="+name), Stdout: stdout, DieWithParent: true}
}

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if run, ok := roles[os.Getenv(roleVariable)]; ok {
		run()
		os.Exit(0)
	}
	if err := BecomeSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// shell starts a script and returns its output line by line.
func shell(t *testing.T, script string, change func(*Command)) (*Process, *bufio.Reader) {
	t.Helper()
	command := Command{Path: "/bin/sh", Args: []string{"-c", script}}
	if change != nil {
		change(&command)
	}
	return startReading(t, command)
}

// startReading starts a command with its output on a pipe; it is killed at the
// end of the test.
func startReading(t *testing.T, command Command) (*Process, *bufio.Reader) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close() })
	command.Stdout = write
	p, err := Start(command)
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.KillGroup()
		<-p.Done()
	})
	return p, bufio.NewReader(read)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", text, err)
	}
	return strings.TrimSpace(text)
}

func pid(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	text := line(t, r)
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("the child said %q", text)
	}
	return n
}

// alive: a zombie is dead.
func alive(pid int) bool {
	state := stat(pid).state
	return state != 0 && state != 'Z' && state != 'X'
}

func dies(t *testing.T, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for ; alive(pid); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d lives on", pid)
			}
		}
	}
}

func ended(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(5 * time.Second):
		t.Fatal("the process does not end")
		return Exit{}
	}
}
