package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/shell"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/symptom"
)

const (
	// endGrace is how long the server may take to exit when it is asked to. A worker gives
	// its kernel some seconds to close.
	endGrace = 3 * time.Second
	// drainTime is how long to keep reading output after the server has exited: its
	// children may hold the pipe open forever.
	drainTime = 100 * time.Millisecond
	// retryGrace is how long a server may take to exit after a request that failed, and
	// laterGrace after it has stopped to listen. settleTime is how long the answers that it
	// has sent may take to arrive.
	retryGrace = 200 * time.Millisecond
	laterGrace = 2 * time.Second
	settleTime = 500 * time.Millisecond
)

// server is a running server.
type server struct {
	place   place
	gpu     bool
	process *proc.Process
	words   *proc.Tail    // the end of its output
	drained chan struct{} // closed when its output has been read to the end
	log     *os.File      // where its output comes from

	lost    context.Context // ends when the server is lost
	lose    context.CancelFunc
	hung    atomic.Pointer[string]   // why this process ended it
	foreign atomic.Pointer[listener] // of another program, at the server's port
	holders sync.Map                 // which descriptor of the server has a listening socket: inode to holder
	settled chan struct{}            // closed when nothing of a lost server is left, and none of its answers is on its way
	seen    atomic.Int64             // when it last answered anything, in nanoseconds
	stop    sync.Once
	stopped chan struct{} // closed when it is to end
	reaping func()        // stops reaping what it leaves behind
}

// start starts the command.
func start(command string, device plugins.Device) (*server, error) {
	// What the server leaves behind becomes a child of this process.
	_ = proc.BecomeSubreaper() // if this fails, killing its process group has to suffice
	where, err := choosePlace(command)
	if err != nil {
		return nil, fault.ServerNotReady.New("serve: find a place for the server: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		where.close()
		return nil, err
	}
	defer write.Close()
	process, err := proc.Start(proc.Command{
		Path: shell.Path, Args: shell.Args(fill(command, where, device)), Env: environment(),
		Stdout: write, Stderr: write, DieWithParent: true,
	})
	if err != nil {
		read.Close()
		where.close()
		return nil, fault.NoProgram.New("serve: %w", err)
	}
	s := &server{
		place: where, gpu: device.GPU, process: process, words: new(proc.Tail), drained: make(chan struct{}), log: read,
		settled: make(chan struct{}), stopped: make(chan struct{}),
	}
	s.reaping = proc.ReapOrphans()
	s.lost, s.lose = context.WithCancel(context.Background())
	s.seen.Store(time.Now().UnixNano())
	go s.copyLog(os.Stderr)
	go s.follow()
	return s, nil
}

// fill replaces the placeholders of a command.
func fill(command string, where place, device plugins.Device) string {
	return strings.NewReplacer(
		portHolder, strconv.Itoa(where.port), socketHolder, where.socket, gpusHolder, strconv.Itoa(max(1, device.Count)),
	).Replace(command)
}

func environment() []string {
	env := shell.Environment()
	if os.Getenv("PYTHONUNBUFFERED") == "" {
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	return env
}

// copyLog passes the server's output on, and keeps the end of it.
func (s *server) copyLog(to io.Writer) {
	defer close(s.drained)
	defer s.log.Close()
	_, _ = io.Copy(io.MultiWriter(s.words, to), s.log)
}

// follow waits for the server to exit.
func (s *server) follow() {
	<-s.process.Done()
	s.lose()
	_ = s.log.SetReadDeadline(time.Now().Add(drainTime))
	<-s.drained
	proc.KillChildren()
	time.Sleep(settleTime)
	close(s.settled)
}

func (s *server) isLost() bool { return s.lost.Err() != nil }

// awaitLoss waits a little for the server to exit.
func (s *server) awaitLoss(ctx context.Context, grace time.Duration) {
	select {
	case <-s.lost.Done():
	case <-time.After(grace):
	case <-ctx.Done():
	}
}

// answered keeps the time of an answer that shows that the server computes.
func (s *server) answered(a plugins.Answer) {
	if a.Verdict == plugins.Lines {
		s.seen.Store(time.Now().UnixNano())
	}
}

// loss returns why the server was lost. It waits until the answers of the server have
// arrived: after this error, gpurun ends the process.
func (s *server) loss() error {
	<-s.settled
	exit := shell.Exit(s.process.Exit())
	kind, sign := fault.Crash, fault.Sign("")
	if found, how := symptom.Diagnose(s.words.String()); found == fault.Device && s.gpu {
		kind, sign = found, how
	} else if exit.Foreign() && s.hung.Load() == nil {
		sign = fault.Outside
	} else if found == fault.Crash {
		sign = how
	}
	return fault.ServerEnded.Of(kind, "%s", s.ended()).WithDetail(s.words.String()).Signed(sign)
}

// ended describes how the server ended. It has exited.
func (s *server) ended() string {
	<-s.settled
	if why := s.hung.Load(); why != nil {
		return "the server " + *why
	}
	return fmt.Sprintf("the server exited: %s%s", shell.Exit(s.process.Exit()), proc.LastLine(s.words.String()))
}

// explain adds what the server has said to an error.
func (s *server) explain(err error) error {
	e := fault.As(fault.ServerNotReady.Wrap(err))
	if e.Detail == "" {
		e = e.WithDetail(s.words.String())
	}
	return e
}

// kill ends the server, for a reason that its records fail with.
func (s *server) kill(why string) {
	s.hung.CompareAndSwap(nil, &why)
	s.process.KillGroup()
	s.lose()
}

// end ends the server and everything it has started. Only the first call does something.
func (s *server) end() { s.stop.Do(s.terminate) }

func (s *server) terminate() {
	close(s.stopped)
	if !s.process.Exited() {
		_ = syscall.Kill(-s.process.Pid(), syscall.SIGTERM)
	}
	s.process.End(endGrace)
	<-s.settled
	s.reaping()
	s.place.close()
}
