package process

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// Pool keeps workers, with their models loaded, for the next job. The zero value is empty.
type Pool struct {
	mu     sync.Mutex
	idle   map[string][]*Worker
	infos  sync.Map // how kernels described themselves: asking one takes a process
	dir    string   // for sockets
	starts int
	// templates fork the interpreters of kept workers; nil before the first.
	templates *Templates
}

// Templates returns the templates of the pool's workers.
func (p *Pool) Templates(makeDir func() (string, error), keep time.Duration) (*Templates, error) {
	dir, err := p.SocketDir(makeDir)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates == nil {
		p.templates = NewTemplates(dir, keep)
	}
	return p.templates, nil
}

// SocketDir creates a folder for the sockets of a worker, which may outlive its job.
func (p *Pool) SocketDir(makeDir func() (string, error)) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		dir, err := makeDir()
		if err != nil {
			return "", err
		}
		p.dir = dir
	}
	p.starts++
	dir := filepath.Join(p.dir, fmt.Sprintf("w%d", p.starts))
	return dir, os.MkdirAll(dir, 0o700)
}

// Take returns a worker that is still alive, nil if there is none, for the next job.
func (p *Pool) Take(key string, renew wire.Renew) *Worker {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for list := p.idle[key]; len(list) > 0; {
		w := list[len(list)-1]
		list = list[:len(list)-1]
		p.idle[key] = list
		select {
		case <-w.guard.Done():
			w.Kill()
			continue
		default:
		}
		if w.conn.Send(wire.Message{Renew: &renew}) == nil {
			return w
		}
		w.Kill()
	}
	return nil
}

// Give keeps a worker that has nothing to do.
func (p *Pool) Give(key string, w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(map[string][]*Worker)
	}
	p.idle[key] = append(p.idle[key], w)
}

// Close ends all workers.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ending sync.WaitGroup
	for _, list := range p.idle {
		for _, w := range list {
			ending.Go(func() { _, _ = w.End() })
		}
	}
	ending.Wait()
	p.idle = nil
	p.templates.Close()
	p.templates = nil
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
		p.dir = ""
	}
}

// Key identifies the workers that can replace each other: those with the same setup on
// the same device. All jobs of a pool have the same layout, once it is known.
func Key(setup wire.Setup, pin []string) string {
	setup.KeepWarm = 0
	setup.SocketDir, setup.Templates, setup.Figures, setup.Spend, setup.Proven, setup.Programs, setup.Layout = "", "", "", wire.Spend{}, nil, nil, nil
	if setup.Records.AutoBatch {
		setup.Records.BatchSize = 0 // the worker has found a better one
	}
	data, _ := json.Marshal(setup)
	return strings.Join(pin, " ") + " " + string(data)
}
