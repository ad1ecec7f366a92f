package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/shell"
)

// Descriptors of the guard: the socket that it listens on, and the connection whose end means
// that the orchestrator has exited.
const (
	listenDescriptor   = 3
	lifelineDescriptor = 4
)

// exitGrace is how long a template may take to run its exit handlers.
const exitGrace = time.Second

// acceptPause is how long the guard waits if it has no descriptor left.
const acceptPause = 10 * time.Millisecond

// forkTime is how long a template may take to fork. One that takes longer waits for a lock.
const forkTime = 10 * time.Second

// guard is the process that starts templates and owns their children.
type guard struct {
	mu        sync.Mutex
	templates map[string]*template
	children  map[string]int // by their mark: a kernel process may have several
	ended     bool           // no template may start
	// used receives the CPU time of each child that has exited. spent adds it up by owner, until the
	// owner asks for it; nil in the guard of a job.
	used  func(usage)
	spent map[string]time.Duration
	found time.Time // when a process last connected; not in the guard of a job
}

// template is a process that forks.
type template struct {
	process *proc.Process
	conn    *net.UnixConn
	loaded  chan struct{} // closed when it is ready or has failed
	load    Load
	given   atomic.Bool // it has become a child itself

	about string
	keep  time.Duration // of a warm one

	mu     sync.Mutex // one fork at a time
	spoilt string     // why it must not be forked any more; empty if it may

	// The guard's lock guards these.
	users int       // children, and requests for one
	last  time.Time // when their number last changed
}

func newGuard(used func(usage)) *guard {
	return &guard{templates: make(map[string]*template), children: make(map[string]int), used: used}
}

// begin makes this process the subreaper of all that it starts, and returns what it listens on.
func begin() (net.Listener, error) {
	if err := proc.BecomeSubreaper(); err != nil {
		return nil, err
	}
	listening := os.NewFile(listenDescriptor, "listener")
	defer listening.Close()
	return net.FileListener(listening)
}

// Serve is the life of a guard. It returns the exit status.
func Serve() int {
	proc.SurviveStopSignals()
	proc.CloseOnExec(listenDescriptor, lifelineDescriptor)
	listener, err := begin()
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpurun: templates: %v\n", err)
		return 2
	}
	lifeline := os.NewFile(lifelineDescriptor, "orchestrator")
	above := json.NewEncoder(lifeline)
	g := newGuard(func(u usage) { _ = above.Encode(u) })
	defer proc.ReapOrphans()()
	go g.accept(listener)
	_, _ = io.Copy(io.Discard, lifeline) // carries no data, only its end
	listener.Close()
	g.end()
	return 0
}

// end kills the children, lets the templates run their exit handlers, and kills what is left.
func (g *guard) end() {
	g.mu.Lock()
	templates := slices.Collect(maps.Values(g.templates))
	g.ended = true
	g.mu.Unlock()
	var keep []int
	for _, t := range templates {
		if !t.given.Load() {
			keep = append(keep, t.process.Pid())
		}
	}
	proc.KillChildren(keep...)
	for _, t := range templates {
		t.conn.Close()
	}
	deadline := time.Now().Add(exitGrace)
	for _, t := range templates {
		t.process.End(time.Until(deadline))
	}
	proc.KillChildren()
}

func (g *guard) accept(listener net.Listener) {
	spare, _ := os.Open(os.DevNull)
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			go g.serve(conn.(*net.UnixConn))
		case errors.Is(err, net.ErrClosed):
			return
		default: // too many open files: whoever asks starts its process without a template
			spare.Close()
			if conn, err := listener.Accept(); err == nil {
				conn.Close()
			}
			time.Sleep(acceptPause)
			spare, _ = os.Open(os.DevNull)
		}
	}
}

// serve serves the process that asks for a child, until the child has exited.
func (g *guard) serve(conn *net.UnixConn) {
	defer conn.Close()
	var first order
	files, err := receive(conn, &first)
	if err == nil && (first.List || first.Stop || first.Used != "") {
		_ = send(conn, report{PID: os.Getpid(), Warm: g.warm(first.Stop), CPU: g.usage(first.Used)})
	}
	if err != nil || first.Request == nil || len(files) == 0 {
		closeAll(files)
		return
	}
	if first.Load {
		t, _ := g.template(*first.Request, files[0]) // the request that follows reports why there is none
		closeAll(files)
		g.release(t)
		return
	}
	t, child, err := g.fork(*first.Request, files)
	closeAll(files)
	if err != nil {
		g.release(t)
		_ = send(conn, report{Refused: err.Error()})
		return
	}
	g.count(first.Request.Mark, 1)
	pidfd, err := unix.PidfdOpen(child.Pid(), 0)
	if err == nil {
		file := os.NewFile(uintptr(pidfd), "child")
		err = send(conn, report{PID: child.Pid(), Itself: child == t.process, Load: t.load}, file)
		file.Close()
	}
	if err != nil {
		child.KillGroup()
	}
	go t.obey(conn, child)
	<-child.Done()
	g.release(t)
	if g.count(first.Request.Mark, -1) == 0 { // otherwise others of the same kernel process are at work
		proc.KillMarked(MarkVariable + "=" + first.Request.Mark)
	}
	exit := child.Exit()
	g.mu.Lock()
	g.used(usage{Owner: first.Request.Owner, CPU: exit.CPU})
	g.mu.Unlock()
	_ = send(conn, report{Exit: &exit})
}

// release ends the use of a template by a request, or by the child that it led to.
func (g *guard) release(t *template) {
	if t == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.users--
	t.last = time.Now()
}

// count counts the living children with a mark.
func (g *guard) count(mark string, change int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.children[mark] += change
	if g.children[mark] == 0 {
		delete(g.children, mark)
	}
	return g.children[mark]
}

// obey carries out the orders of the process that has a child, and kills the child when that
// process disconnects.
func (t *template) obey(conn *net.UnixConn, child *proc.Process) {
	for {
		var o order
		files, err := receive(conn, &o)
		closeAll(files)
		if o.Spoil != "" {
			t.spoil(o.Spoil)
		}
		if err != nil || o.Kill {
			child.KillGroup()
		}
		if err != nil {
			return
		}
	}
}

func (t *template) spoil(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoilt = cmp.Or(t.spoilt, why)
}

// fork returns a child, or why there is none. The first of the files is for the template, the others
// for the child.
func (g *guard) fork(r Request, files []*os.File) (*template, *proc.Process, error) {
	t, err := g.template(r, files[0])
	if err != nil {
		return nil, nil, err
	}
	<-t.loaded
	t.mu.Lock()
	defer t.mu.Unlock()
	message, err := json.Marshal(r.Message)
	switch {
	case err != nil:
		return t, nil, err
	case t.spoilt != "":
		return t, nil, errors.New(t.spoilt)
	case t.load.Unsafe == "":
		child, err := proc.Adopt(func() (int, error) { return t.ask(message, files[1:]) })
		if err != nil {
			g.forget(r.Key, t)
			err = fmt.Errorf("the template did not fork: %w", err)
		}
		return t, child, err
	case r.Keep > 0:
		g.forget(r.Key, t)
		return t, nil, errors.New(t.load.Unsafe)
	}
	// It becomes the child itself: what it has loaded is not loaded again. That works once.
	t.spoilt = t.load.Unsafe
	t.given.Store(true)
	if _, err := t.ask(message, files[1:]); err != nil {
		return t, nil, errors.New(t.spoilt)
	}
	return t, t.process, nil
}

// ask asks the template for a child and returns its pid.
func (t *template) ask(message []byte, files []*os.File) (pid int, err error) {
	_ = t.conn.SetDeadline(time.Now().Add(forkTime))
	if err := sendBody(t.conn, message, files); err != nil {
		return 0, err
	}
	var answer report
	extra, err := receive(t.conn, &answer)
	closeAll(extra)
	switch {
	case err != nil:
		return 0, errors.New("it was lost")
	case answer.PID <= 0:
		return 0, errors.New(cmp.Or(answer.Refused, "it failed"))
	}
	return answer.PID, nil
}

// template returns the template with a key, and starts it if there is none. The caller must release it.
func (g *guard) template(r Request, file *os.File) (*template, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.templates[r.Key]; t != nil {
		t.users++
		t.keep = r.Keep
		return t, nil
	}
	if g.ended {
		return nil, errors.New("the job has ended")
	}
	env := append(append(shell.Environment(), MarkVariable+"="+NewMark()), r.Env...)
	if r.Keep > 0 {
		env = r.Env
		g.makeRoom()
	}
	ours, theirs, err := proc.PacketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	process, err := proc.Start(proc.Command{
		Path: r.Path, Args: r.Args, Env: env,
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs, file},
		DieWithParent: true, BlockStopSignals: true,
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	t := &template{process: process, conn: ours, loaded: make(chan struct{}), about: r.About, keep: r.Keep, users: 1, last: time.Now()}
	g.templates[r.Key] = t
	go func() {
		defer close(t.loaded)
		_, err := ours.Read(make([]byte, maxPacket)) // its greeting
		if err == nil {
			_, err = receive(ours, &t.load)
		}
		if err != nil {
			t.spoil("it could not be loaded in a template")
		}
	}()
	go func() {
		<-process.Done()
		_ = ours.SetReadDeadline(time.Now()) // its children may hold the other end open
		<-t.loaded
		t.mu.Lock()
		lost := t.spoilt == ""
		t.mu.Unlock()
		if lost || r.Keep > 0 { // the next request starts another
			g.forget(r.Key, t)
		}
	}()
	return t, nil
}

// forget removes a template that was lost.
func (g *guard) forget(key string, t *template) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.templates[key] == t {
		delete(g.templates, key)
		t.process.KillGroup()
		t.conn.Close()
	}
}
