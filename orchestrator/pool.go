package orchestrator

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/internal/judge"
	"github.com/gpurun/gpurun/internal/wire"
)

// Pool keeps workers, with their models loaded, from one job to the next that needs the
// same: jobs that run one after the other with the same kernel and settings. The zero value
// is an empty pool. Close must be called after the last job.
//
// Workers of a job with typed columns are not kept: they know the layout of its columns.
type Pool struct {
	mu     sync.Mutex
	idle   map[string][]*keptWorker
	infos  map[string]wire.Ready
	dir    string // for sockets
	starts int
}

// keptWorker is a worker between two jobs.
type keptWorker struct {
	*workerProcess
	sources []wire.Source // what its kernel has loaded
}

// socketDir creates a folder for the sockets of a worker, which may outlive its job.
func (p *Pool) socketDir() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		dir, _, err := makeRunDir(func(string) {})
		if err != nil {
			return "", err
		}
		p.dir = dir
	}
	p.starts++
	dir := filepath.Join(p.dir, fmt.Sprintf("w%d", p.starts))
	return dir, os.MkdirAll(dir, 0o700)
}

// described returns how a kernel described itself to an earlier job, nil if it has not:
// asking it takes a process.
func (p *Pool) described(key string) *wire.Ready {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ready, known := p.infos[key]; known {
		return &ready
	}
	return nil
}

// describe keeps how a kernel has described itself.
func (p *Pool) describe(key string, ready wire.Ready) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.infos == nil {
		p.infos = make(map[string]wire.Ready)
	}
	p.infos[key] = ready
}

// take returns a worker that is still alive, nil if there is none, for the next job.
func (p *Pool) take(key string, renew wire.Renew) *keptWorker {
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
			w.kill()
			continue
		default:
		}
		if w.conn.Send(wire.Message{Renew: &renew}) == nil {
			return w
		}
		w.kill()
	}
	return nil
}

// give keeps a worker that has nothing to do.
func (p *Pool) give(key string, w *keptWorker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(map[string][]*keptWorker)
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
			ending.Go(func() { _ = w.end() })
		}
	}
	ending.Wait()
	p.idle = nil
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
		p.dir = ""
	}
}

// poolKey identifies the workers that can replace each other: those with the same setup on
// the same device.
func poolKey(setup wire.Setup, slot Slot) string {
	setup.SocketDir, setup.Figures, setup.Spend, setup.Proven, setup.Programs = "", "", wire.Spend{}, nil, nil
	if setup.Records.AutoBatch {
		setup.Records.BatchSize = 0 // the worker has found a better one
	}
	data, _ := json.Marshal(setup)
	return strings.Join(slot.Pin, " ") + " " + string(data)
}

// adopt makes a kept worker the slot's. The kernel is open, and its first records were
// judged in the job that opened it.
func (s *slotRun) adopt(w *keptWorker) {
	s.worker, s.loaded = w.workerProcess, w.sources
	s.job.fleet.started(s.slot, s.worker)
	s.job.emit(WorkerStarted{Slot: s.slot.Number, Device: s.slot.Name, PID: s.worker.pid})
	s.job.ledger.hear(s.slot.Number, &judge.First{})
}

// park keeps the slot's worker for the next job, if there may be one that needs it;
// otherwise it releases the worker.
func (s *slotRun) park() bool {
	pool := s.job.config.Pool
	if pool == nil || s.worker == nil || !s.opened || len(s.ahead) > 0 || s.left ||
		!s.job.state.running() || s.job.config.columnSpec() != nil {
		return false
	}
	w := &keptWorker{workerProcess: s.worker, sources: s.loaded}
	s.job.fleet.exited(s.slot, 0)
	s.job.ledger.withdraw(s.slot.Number)
	s.worker = nil
	pool.give(s.poolKey, w)
	return true
}
