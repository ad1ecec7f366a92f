package process

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/proc"
	"github.com/gpurun/gpurun/internal/template"
	"github.com/gpurun/gpurun/internal/wire"
)

// Templates are the guards whose templates fork the interpreters of workers: one guard for each
// device, so that what a template imports sees the worker's device.
type Templates struct {
	dir  string        // of the sockets
	keep time.Duration // how long templates outlive the job; 0 if they do not

	mu     sync.Mutex
	guards map[string]*template.Guard
	starts int
	cpu    map[string]time.Duration // of exited interpreters, by the mark of their worker
}

// NewTemplates returns templates without guards, whose sockets will be in dir. With keep, warm
// templates that outlive the job come first.
func NewTemplates(dir string, keep time.Duration) *Templates {
	return &Templates{dir: dir, keep: keep, guards: make(map[string]*template.Guard), cpu: make(map[string]time.Duration)}
}

// offer returns the socket where a guard for workers like this listens, and for how long its
// templates outlive the job. It starts the guard if there is none. The socket is "" if that fails:
// interpreters start without templates, too.
func (t *Templates) offer(s Spec) (socket string, keep time.Duration) {
	if t == nil {
		return "", 0
	}
	if t.keep > 0 {
		if socket, err := template.KeepWarm(s.Binary, wire.TemplatesArgument, "warm"); err == nil {
			return socket, t.keep
		}
	}
	return t.socket(s), 0
}

// socket returns where the guard of a device listens.
func (t *Templates) socket(s Spec) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.guards[s.Device]; g != nil && g.Lives() {
		return g.Socket
	}
	log, err := s.openLog()
	if err != nil {
		return "" // the worker reports it
	}
	defer log.Close()
	t.starts++
	g, err := template.Start(proc.Command{
		Path: s.Binary, Args: []string{wire.TemplatesArgument}, Dir: s.Setup.Dir, CPUs: s.CPUs,
		Env: append(s.Env, wire.MarkVariable+"="+proc.NewMark()), Stdout: log, Stderr: log,
	}, filepath.Join(t.dir, fmt.Sprintf("t%d", t.starts)), t.used)
	if err != nil {
		fmt.Fprintf(log, "gpurun: Python starts without templates: %v\n", err)
		return ""
	}
	t.guards[s.Device] = g
	return g.Socket
}

// guard returns the process of the guard for workers with this device; 0 if there is none.
func (t *Templates) guard(device string) int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch g := t.guards[device]; {
	case g != nil:
		return g.PID()
	case t.keep > 0:
		return template.WarmGuard()
	}
	return 0
}

// used notes the CPU time of an interpreter that has exited.
func (t *Templates) used(owner string, cpu time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cpu[owner] += cpu
}

// of returns the CPU time of the interpreters of a worker.
func (t *Templates) of(mark string) time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keep > 0 {
		t.cpu[mark] += template.WarmUsage(mark)
	}
	return t.cpu[mark]
}

// Close ends the guards, with the interpreters that are left.
func (t *Templates) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	guards := t.guards
	t.guards = nil
	t.mu.Unlock()
	var ending sync.WaitGroup
	for _, g := range guards {
		ending.Go(g.Close)
	}
	ending.Wait()
}
