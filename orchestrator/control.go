package orchestrator

import (
	"context"
	"sync"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/orchestrator/event"
	"github.com/gpurun/gpurun/orchestrator/process"
)

// Control steers one job: put a new one into Config.Control before Run.
// Its methods are safe to call from any goroutine, also before the job starts and after
// it ends. To stop a job, cancel Run's context.
type Control struct {
	mu      sync.Mutex
	job     *job          // nil before and after the job
	resume  chan struct{} // closed by Resume; nil unless paused
	monitor *gpu.Monitor  // nil unless GPUs are monitored
	// trimming allows one Trim at a time: responses carry no number.
	trimming sync.Mutex
}

// Awaits is what keeps a worker's kernel from computing: the files of the next records, or a
// server that cannot be reached or asks for a pause.
type Awaits = wire.Awaits

// What a kernel may wait for.
const (
	AwaitsFiles  = wire.AwaitsFiles
	AwaitsServer = wire.AwaitsServer
)

// Pool keeps workers, with their models loaded, from one job to the next that needs the
// same: jobs that run one after the other with the same kernel and settings. The zero value
// is an empty pool. Close must be called after the last job.
//
// Workers of a job with typed columns are not kept: they know the layout of its columns.
type Pool struct{ workers process.Pool }

// Close ends all workers.
func (p *Pool) Close() { p.workers.Close() }

// kept returns the pool's workers, nil without a pool.
func (p *Pool) kept() *process.Pool {
	if p == nil {
		return nil
	}
	return &p.workers
}

// Trimmed is the result of asking a worker's kernel to free memory.
type Trimmed = event.Trimmed

// Pause makes every worker stop at its next batch boundary and wait there. Results so
// far are committed; processes, models and device memory stay. It reports whether the
// job was not paused already.
func (c *Control) Pause() bool {
	c.mu.Lock()
	j, paused := c.job, c.resume != nil
	if !paused {
		c.resume = make(chan struct{})
	}
	c.mu.Unlock()
	if paused || j == nil {
		return !paused
	}
	j.config.emit(Paused{})
	j.fleet.EndChunks() // slots give their workers no others
	return true
}

// Resume continues a paused job. It reports whether the job was paused.
func (c *Control) Resume() bool {
	c.mu.Lock()
	j, resume := c.job, c.resume
	c.resume = nil
	c.mu.Unlock()
	if resume == nil {
		return false
	}
	if j != nil {
		j.config.emit(Resumed{})
	}
	close(resume)
	return true
}

// paused returns a channel that is closed when the job continues, or nil if the job is
// not paused.
func (c *Control) paused() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resume
}

// MonitorSettings returns the settings of the job's monitor by their names in the
// configuration file; nil if no GPU is monitored.
func (c *Control) MonitorSettings() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.monitor == nil {
		return nil
	}
	return c.monitor.Config().Settings()
}

// ConfigureMonitor changes settings of the job's monitor, all of them or, on error, none.
// They apply from the next sample on. Errors are KindUsage, or KindConflict if no GPU is
// monitored.
func (c *Control) ConfigureMonitor(changes map[string]any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.monitor == nil {
		return fault.NoAnswer.New("the job monitors no GPU")
	}
	return c.monitor.Configure(changes)
}

// watch gives access to the monitor.
func (c *Control) watch(m *gpu.Monitor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.monitor = m
}

// Trim asks every kernel of the job to free device memory that it caches but does not
// need, at its next batch boundary. It waits for all of them or for the end of ctx.
func (c *Control) Trim(ctx context.Context) []Trimmed {
	c.trimming.Lock()
	defer c.trimming.Unlock()
	c.mu.Lock()
	j := c.job
	c.mu.Unlock()
	if j == nil {
		return nil
	}
	return j.fleet.Trim(ctx)
}

// attach makes j the controlled job, nil for none, and reports whether it was paused before it
// started.
func (c *Control) attach(j *job) (paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.job = j
	return c.resume != nil
}
