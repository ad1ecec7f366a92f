package python

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
	"github.com/gpurun/gpurun/plugins/python/fields"
)

// session is an interpreter at work.
type session struct {
	python  *child
	space   *space
	extract fields.Extractor
	pool    *pool         // nil unless processes run prepare
	pace    *pace         // of the threads that run prepare; nil if none do
	ended   chan struct{} // closed when Python sends nothing more
	replies chan response // to requests other than batches
	// abandoned: the caller stopped waiting for the last response, so Python may be
	// stuck and never read another request.
	abandoned bool
	asked     asked  // records of an async kernel
	stopWatch func() // for a hang; called when the first batch is done

	// finishing is held while batches are completed, so that they complete in order.
	finishing sync.Mutex

	mu      sync.Mutex
	batches []*inFlight // in order
	number  uint64
	names   []string // fields sent with every batch
	lines   bool     // whole records are sent too
	broken  error    // why no more batches can be computed
	sources []plugins.Source
	closed  bool

	taken  atomic.Uint64                           // results consumed
	memory atomic.Pointer[plugins.FrameworkMemory] // as last reported
}

// inFlight is a batch that Python has.
type inFlight struct {
	number  uint64
	batch   plugins.Batch
	results *plugins.Results
	finish  func(error)

	request request
	failed  error    // set if the main process will not get it
	file    *os.File // with what prepare returned, if it is large
}

func newSession(python *child) *session {
	s := &session{
		python: python, space: newSpace(python.memory.data[:len(python.memory.data)/2]),
		ended: make(chan struct{}), replies: make(chan response, 1),
	}
	s.asked.session = s
	go s.listen()
	return s
}

// ask sends a request and waits for a response of type want.
func (s *session) ask(ctx context.Context, req request, want string) (response, error) {
	select {
	case <-s.replies: // discard the response to an abandoned request
	default:
	}
	if err := s.python.channel.Send(req); err != nil {
		<-s.ended
	}
	var reply response
	select {
	case reply = <-s.replies:
	case <-s.ended:
		select {
		case reply = <-s.replies: // its last
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			return response{}, s.broken
		}
	case <-ctx.Done():
		s.abandoned = true
		return response{}, ctx.Err()
	}
	switch reply.Type {
	case want:
		return reply, nil
	case "failed":
		return reply, reply.err()
	}
	return reply, fault.PythonAnswer.New("Python sent %q instead of %q", reply.Type, want)
}

// compute sends a batch to Python and does not wait for the result, so that its
// fields are written while Python computes the batch before it.
func (s *session) compute(batch plugins.Batch, results *plugins.Results) {
	b := &inFlight{batch: batch, results: results, finish: results.Defer()}
	s.mu.Lock()
	broken, names, lines := s.broken, s.names, s.lines
	if broken == nil {
		s.number++
		b.number = s.number
		s.batches = append(s.batches, b)
	}
	s.mu.Unlock()
	if broken != nil {
		b.finish(broken)
		return
	}
	b.request = request{Type: "batch", Batch: b.number, Count: batch.Len(), Fetched: batch.FetchedNames(), Taken: s.taken.Load(), Isolate: batch.Isolation().Seconds()}
	if err := s.fill(&b.request, &s.extract, b, names, lines, true); err != nil {
		s.failBatch(b, err)
	} else if s.pool != nil {
		s.pool.add(b)
	} else {
		// If the connection is broken, its reader notices and reports why.
		_ = s.python.channel.Send(b.request)
	}
}

// fill writes fields of a batch, and optionally its lines, to the shared memory.
func (s *session) fill(req *request, e *fields.Extractor, b *inFlight, names []string, lines, wait bool) error {
	var list []fields.Layout
	if len(names) > 0 {
		e.Read(b.batch, names)
		list = e.Layouts(b.batch.Len())
	}
	if lines {
		list = append(list, fields.LineLayout(b.batch))
	}
	size := 0
	for i := range list {
		size += list[i].Size()
	}
	if size == 0 {
		return nil
	}
	at, err := s.space.alloc(b.number, size, wait)
	if err != nil {
		return err
	}
	for i := range list {
		var f fields.Field
		f, at = list[i].Write(s.python.memory.data, at)
		if lines && i == len(list)-1 {
			req.Lines = &f
		} else {
			req.Fields = append(req.Fields, f)
		}
	}
	return nil
}

// failBatch fails a batch that the main process has not been given, once the ones before
// it are complete.
func (s *session) failBatch(b *inFlight, err error) {
	s.finishing.Lock()
	defer s.finishing.Unlock()
	s.mu.Lock()
	b.failed = err
	s.mu.Unlock()
	s.finishFailed()
}

// finishFailed completes the oldest batches as long as they have failed. The caller must
// hold s.finishing.
func (s *session) finishFailed() {
	for {
		s.mu.Lock()
		if len(s.batches) == 0 || s.batches[0].failed == nil {
			s.mu.Unlock()
			return
		}
		b := s.batches[0]
		s.batches = s.batches[1:]
		s.mu.Unlock()
		s.release(b)
		b.finish(b.failed)
	}
}

// release frees the shared memory of a batch.
func (s *session) release(b *inFlight) {
	s.space.free(b.number)
	if s.pool != nil {
		s.pool.space.free(b.number)
	}
	if b.file != nil {
		b.file.Close()
	}
}

// listen handles responses from Python until it exits, and finds out why it did.
func (s *session) listen() {
	defer close(s.ended)
	asked := fields.Extractor{}
	for {
		r, err := receive(s.python.channel)
		if err == nil {
			err = s.handle(r, &asked)
		}
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				err = fault.KernelCrashed.New("the kernel is closed")
			} else {
				err = s.python.explain(err)
			}
			s.fail(err)
			return
		}
	}
}

func (s *session) handle(r response, asked *fields.Extractor) error {
	s.addSources(r.Sources)
	switch {
	case r.Type == "ask":
		return s.supply(s.python, r, asked)
	case r.Type == "space": // all earlier results have been consumed
		return s.python.channel.Send(request{Type: "taken", Taken: s.taken.Load()})
	case r.Type == "waits": // process, for a batch that prepare has not finished
		return s.adjust((*pace).waits)
	case r.Type == "answers":
		return s.asked.receive(r)
	case r.Type == "blocked":
		s.asked.reportBlocked(r)
		return nil
	case r.Type == "result", r.Type == "failed" && r.Batch > 0:
		return s.complete(r)
	}
	select {
	case s.replies <- r:
	default: // the caller has stopped waiting
	}
	return nil
}

// supply sends the fields that Python asks for, and adds them to those sent with
// later batches.
func (s *session) supply(python *child, r response, e *fields.Extractor) error {
	req := request{Type: "fields", Ask: r.Ask, Batch: r.Batch}
	s.mu.Lock()
	index := slices.IndexFunc(s.batches, func(b *inFlight) bool { return b.number == r.Batch })
	if index < 0 {
		s.mu.Unlock()
		req.Error = "this batch is already finished"
		return python.channel.Send(req)
	}
	b := s.batches[index]
	s.learn(r.Names, r.WantLines)
	s.mu.Unlock()
	for names := r.Names; len(names) > 0; names = names[min(len(names), fields.Most):] {
		if err := s.fill(&req, e, b, names[:min(len(names), fields.Most)], false, false); err != nil {
			req.Error = err.Error()
		}
	}
	if r.WantLines {
		if err := s.fill(&req, e, b, nil, true, false); err != nil {
			req.Error = err.Error()
		}
	}
	return python.channel.Send(req)
}

// learn notes fields to send with later batches. The caller must hold s.mu.
func (s *session) learn(names []string, lines bool) {
	s.lines = s.lines || lines
	for _, name := range names {
		if len(s.names) < fields.Most && !slices.Contains(s.names, name) {
			s.names = append(s.names[:len(s.names):len(s.names)], name)
		}
	}
}

// complete finishes the oldest batch.
func (s *session) complete(r response) error {
	s.finishing.Lock()
	defer s.finishing.Unlock()
	s.mu.Lock()
	if len(s.batches) == 0 || s.batches[0].number != r.Batch {
		s.mu.Unlock()
		return fault.PythonAnswer.New("Python returned results for a batch that it was not given")
	}
	b := s.batches[0]
	s.batches = s.batches[1:]
	s.mu.Unlock()
	s.stopWatch()
	s.release(b)
	if r.Type == "failed" {
		b.finish(r.err())
	} else {
		b.finish(s.decode(b, &r))
		s.taken.Add(1)
	}
	s.finishFailed()
	if s.pool != nil {
		s.pool.answered()
		return nil
	}
	return s.adjust((*pace).taken)
}

// decode reads the results of a batch.
func (s *session) decode(b *inFlight, r *response) error {
	if r.Memory != nil {
		s.memory.Store(r.Memory)
	}
	d := &decoder{batch: b.batch, results: b.results, step: r.Step}
	err := d.decode(s.python.memory.data, &r.answer)
	if err == nil {
		s.python.memory.release(int(r.Block[0]), int(r.Block[0]+r.Block[1]))
	}
	return err
}

// adjust updates the pace of the threads that run prepare, and tells Python if it has
// changed.
func (s *session) adjust(update func(*pace)) error {
	if s.pace == nil {
		return nil
	}
	before := s.pace.wanted
	update(s.pace)
	if s.pace.wanted == before {
		return nil
	}
	return s.python.channel.Send(request{Type: "pace", Wanted: s.pace.wanted})
}

// fail completes all batches in flight, and all later ones, with err.
func (s *session) fail(err error) {
	s.mu.Lock()
	s.broken = err
	batches := s.batches
	s.batches = nil
	s.mu.Unlock()
	s.space.close()
	if s.pool != nil {
		s.pool.drop()
	}
	for _, b := range batches {
		b.finish(err)
	}
	s.asked.fail(err)
}

// addSources adds files that Python has loaded.
func (s *session) addSources(list [][2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range list {
		source := plugins.Source{Path: one[0], Sum: one[1]}
		if !slices.Contains(s.sources, source) { // every process loads them
			s.sources = append(s.sources, source)
		}
	}
}
