package python

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/frame"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
	"github.com/gpurun/gpurun/plugins/resolve"
)

// pool runs prepare in processes of their own, beside the lock of the interpreter that
// runs process:
//
//	           ┌─► prepare process ─┐
//	batches ───┼─► prepare process ─┼──► process, in order
//	           └─► prepare process ─┘
//
// Records reach the processes from the memory that holds them anyway. What prepare returns
// goes through a second shared memory, from which the main process copies it. The messages
// about both carry only descriptions.
//
// A process that dies with a batch fails it as a crash, and the worker restarts the kernel,
// as after any crash. One that dies idle is replaced.
type pool struct {
	session *session
	memory  *memory // for what prepare returns
	space   *space
	records *os.File // the memory of the records, read-only
	starts  starting // of its processes
	setup   request

	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	children sync.WaitGroup

	// sending is held while messages are sent, so that batches arrive in order.
	sending sync.Mutex

	mu       sync.Mutex
	limit    int // of processes
	pace     *pace
	pending  []*inFlight // not yet sent to the main process, oldest first
	begun    int         // how many of them, the oldest ones, a process has begun
	passed   int         // sent to the main process and not answered
	ready    int         // bytes that are prepared and not sent to it
	idle     []*preparer
	running  map[*preparer]bool
	starting int
}

// preparer is one of the pool's processes.
type preparer struct {
	*child
	batch *inFlight // the one that it prepares
	leave func()    // gives up its seat
}

// maxPassed is how many batches the main process has: the one it computes, the one whose
// results are being copied from the device, and the next.
const maxPassed = 3

// maxReady is how many bytes may be prepared before no further batch is, beyond one for
// each process.
const maxReady = 512 << 20

// preparedSizes are tried in turn.
var preparedSizes = memorySizes

// newPool creates the pool without its processes.
func newPool(s *session, steps []resolve.PythonStep, limit int, device plugins.Device) (_ *pool, err error) {
	device.GPU, device.Count, device.Memory = false, 0, 0
	device.Threads = max(1, device.Threads/limit)
	p := &pool{
		session: s, limit: limit, pace: newProcessPace(limit), running: map[*preparer]bool{},
		setup: request{Type: "open", Steps: steps, Device: &device},
	}
	if _, forks := offered(s.python.terminal); forks { // they start in a moment
		p.pace.wanted = max(fewestAhead, limit/2)
	}
	p.starts = preparing(s.python.interpreter, steps[0].File, device.Threads)
	if p.memory, err = newMemory(preparedSizes); err != nil {
		return nil, err
	}
	if p.records, err = s.python.memory.readOnly(); err == nil {
		p.starts.modules, err = p.memory.writeModules()
	}
	if err != nil {
		p.memory.close()
		return nil, err
	}
	p.starts.from, p.starts.memory = 5, []*os.File{p.records, p.memory.file}
	p.space = newSpace(p.memory.data)
	_, _ = p.space.alloc(0, p.starts.modules, false) // later processes read them too
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// preparing is how prepare processes start, but for what they share with the main process.
func preparing(interpreter, file string, threads int) starting {
	variables := preparerVariables(threads)
	return starting{
		program: "prepare", env: append(environment(), variables...),
		template: templateOf("prepare", interpreter, []string{file}, variables),
	}
}

// openFirst starts the first processes. The returned function waits until they are ready.
func (p *pool) openFirst() (ready func(context.Context) error) {
	count := min(p.limit, fewestAhead)
	outcomes := make(chan error, count)
	p.mu.Lock()
	defer p.mu.Unlock()
	for range count {
		p.start(func(err error) { outcomes <- err })
	}
	count = p.starting
	return func(ctx context.Context) error {
		for range count {
			select {
			case err := <-outcomes:
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// start starts a process and calls done with the outcome. It returns false if all seats are
// taken and the pool can do without. The caller must hold p.mu.
func (p *pool) start(done func(error)) bool {
	leave, ok := takeSeat()
	switch {
	case !ok && len(p.running)+p.starting > 0:
		return false
	case !ok:
		leave = func() {}
	}
	p.starting++
	p.children.Go(func() {
		one, err := p.open()
		p.mu.Lock()
		p.starting--
		if err != nil {
			leave()
		} else {
			one.leave = leave
			p.running[one] = true
			p.idle = append(p.idle, one)
			if p.ctx.Err() != nil { // close has not seen it
				one.process.KillGroup()
			}
		}
		p.mu.Unlock()
		done(err)
		if err == nil {
			p.advance()
			p.listen(one)
		}
	})
	return true
}

// open starts a process and waits until its setup_prepare has returned.
func (p *pool) open() (*preparer, error) {
	main := p.session.python
	one := &preparer{child: &child{what: "a prepare process", interpreter: main.interpreter, terminal: main.terminal}}
	if err := one.start(p.ctx, p.starts); err != nil {
		return nil, err
	}
	one.printer.device.Store(main.printer.device.Load())
	stop := context.AfterFunc(p.ctx, one.process.KillGroup)
	defer stop()
	defer one.watchHang()()
	_ = one.channel.Send(p.setup) // receive reports why it failed
	reply, err := receive(one.channel)
	switch {
	case err != nil:
		err = one.explain(err)
	case reply.Type == "failed":
		err = reply.err()
	}
	if err != nil {
		one.kill()
		if one.spoilt.Load() { // the next one is fresh
			return p.open()
		}
		return nil, err
	}
	p.session.addSources(reply.Sources)
	return one, nil
}

// add queues a batch.
func (p *pool) add(b *inFlight) {
	p.mu.Lock()
	p.pending = append(p.pending, b)
	p.mu.Unlock()
	p.advance()
}

// advance sends everything that can be sent.
func (p *pool) advance() {
	p.sending.Lock()
	defer p.sending.Unlock()
	for {
		to, req := p.next()
		if to == nil {
			return
		}
		_ = to.Send(req) // if the connection is broken, its reader notices and reports why
	}
}

// next returns the next message to send, and to which process; nil if there is none.
func (p *pool) next() (*frame.Conn, request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 && p.pending[0].request.Prepared != nil && p.passed < maxPassed {
		req := p.pending[0].request
		p.pending = p.pending[1:]
		p.ready -= req.Prepared.bytes()
		p.begun--
		p.passed++
		p.pace.taken()
		req.Taken = p.session.taken.Load()
		return p.session.python.channel, req
	}
	if p.begun == len(p.pending) || p.begun >= p.pace.wanted || p.begun > p.limit && p.ready > maxReady {
		return nil, request{}
	}
	if len(p.idle) == 0 {
		p.grow()
		return nil, request{}
	}
	one := p.idle[len(p.idle)-1] // its caches are the warmest
	p.idle = p.idle[:len(p.idle)-1]
	one.batch = p.pending[p.begun]
	p.begun++
	return one.channel, one.batch.request
}

// grow starts as many processes as the pace wants. The caller must hold p.mu.
func (p *pool) grow() {
	for len(p.running)+p.starting < min(p.limit, p.pace.wanted) && p.start(p.grown) {
	}
}

// grown handles the start of a further process. If that fails, the pool makes do with
// those it has.
func (p *pool) grown(err error) {
	if err == nil || p.ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	p.limit = max(1, len(p.running)+p.starting)
	waiting := slices.Clone(p.pending[p.begun:])
	if len(p.running)+p.starting > 0 {
		waiting = nil
	}
	p.mu.Unlock()
	p.session.python.printer.write(fmt.Appendf(nil, "gpurun: cannot start another prepare process: %v", err))
	for _, b := range waiting {
		p.fail(b, fault.PythonNotStarted.Of(fault.Worker, "cannot start a prepare process: %w", err).WithDetail(detailOf(err)))
	}
}

func detailOf(err error) string {
	if e := fault.As(err); e != nil {
		return e.Detail
	}
	return ""
}

// answered notes that the main process has completed a batch. If it waits for the next
// one while more could be prepared at a time, their number quadruples: until the next step,
// processes start and prepare a batch each, so small steps would take too long.
func (p *pool) answered() {
	p.mu.Lock()
	p.passed--
	if p.passed == 0 && p.starting == 0 && p.begun < len(p.pending) && p.pending[0].request.Prepared == nil {
		for range 3 * p.pace.wanted {
			p.pace.waits()
		}
	}
	p.mu.Unlock()
	p.advance()
}

// listen handles the messages of a process until it exits.
func (p *pool) listen(one *preparer) {
	asked := fields.Extractor{}
	for {
		r, err := receive(one.channel)
		if err == nil {
			err = p.handle(one, r, &asked)
		}
		if err != nil {
			p.lose(one, err)
			return
		}
	}
}

func (p *pool) handle(one *preparer, r response, asked *fields.Extractor) error {
	p.session.addSources(r.Sources)
	switch r.Type {
	case "ask":
		return p.session.supply(one.child, r, asked)
	case "reserve":
		at, err := p.space.alloc(r.Batch, r.Size, false) // waiting could last forever: an earlier batch may need room too
		if err != nil {
			at = -1
		}
		return one.channel.Send(request{Type: "fields", Ask: r.Ask, At: &at})
	}
	p.mu.Lock()
	b := one.batch
	p.mu.Unlock()
	if b == nil || b.number != r.Batch || r.Type != "failed" && r.Prepared == nil {
		return fault.PythonAnswer.New("a prepare process sent an unexpected %q", r.Type)
	}
	if r.Type == "failed" {
		p.free(one, nil)
		p.fail(b, r.err())
		return nil
	}
	if r.Prepared.File > 0 {
		file, err := os.Open(filePath(one.process.Pid(), r.Prepared.File))
		if err != nil {
			return fault.KernelCrashed.New("open what prepare returned: %w", err)
		}
		b.file, r.Prepared.Path = file, filePath(os.Getpid(), int(file.Fd()))
	}
	p.free(one, r.Prepared)
	return nil
}

// free notes that a process has finished its batch, and what it prepared.
func (p *pool) free(one *preparer, result *prepared) {
	p.mu.Lock()
	one.batch.request.Prepared = result
	if slices.Contains(p.pending, one.batch) { // it was not dropped meanwhile
		p.ready += result.bytes()
	}
	one.batch = nil
	p.idle = append(p.idle, one)
	p.mu.Unlock()
	p.advance()
}

// lose handles the end of a process.
func (p *pool) lose(one *preparer, err error) {
	if p.ctx.Err() == nil {
		err = one.explain(err)
	}
	one.kill()
	one.leave()
	p.mu.Lock()
	delete(p.running, one)
	p.idle = slices.DeleteFunc(p.idle, func(other *preparer) bool { return other == one })
	b := one.batch
	p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	if b != nil {
		p.fail(b, err)
	}
	p.advance()
}

// fail removes a batch that cannot be prepared.
func (p *pool) fail(b *inFlight, err error) {
	p.mu.Lock()
	if index := slices.Index(p.pending, b); index >= 0 {
		p.pending = slices.Delete(p.pending, index, index+1)
		if index < p.begun {
			p.begun--
		}
	}
	p.mu.Unlock()
	p.session.failBatch(b, err)
	p.advance()
}

// drop forgets all batches, because the main process has ended.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending, p.begun, p.passed, p.ready = nil, 0, 0, 0
}

// close ends the processes.
func (p *pool) close() {
	p.drop()
	p.mu.Lock()
	p.cancel()
	for one := range p.running {
		one.process.KillGroup()
	}
	p.mu.Unlock()
	p.children.Wait()
	p.records.Close()
	p.memory.close()
}
