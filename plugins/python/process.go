package python

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// Process sends a batch to Python and does not wait for the result, so that its
// fields are written while Python computes the batch before it.
func (k *kernel) Process(ctx context.Context, batch plugins.Batch, results *plugins.Results) error {
	if k.async {
		return plugins.ProcessEach(ctx, k, k.info.Concurrency, batch, results)
	}
	finish := results.Defer()
	k.mu.Lock()
	if k.broken != nil {
		defer k.mu.Unlock()
		finish(k.broken)
		return nil
	}
	k.number++
	b := &inFlight{number: k.number, batch: batch, results: results, finish: finish}
	names, lines := k.names, k.lines
	k.batches = append(k.batches, b)
	k.mu.Unlock()

	b.request = request{Type: "batch", Batch: b.number, Count: batch.Len(), Fetched: batch.FetchedNames(), Taken: k.taken.Load(), Isolate: batch.Isolation().Seconds()}
	if err := k.fill(&b.request, &k.extract, b, names, lines, true); err != nil {
		k.failBatch(b, err)
		return nil
	}
	if k.pool != nil {
		k.pool.add(b)
		return nil
	}
	// If the connection is broken, its reader notices and reports why.
	_ = k.python.channel.Send(b.request)
	return nil
}

// fill writes fields of a batch, and optionally its lines, to the shared memory.
func (k *kernel) fill(req *request, e *extractor, b *inFlight, names []string, lines, wait bool) error {
	var list []layout
	if len(names) > 0 {
		e.read(b.batch, names)
		list = e.layouts(b.batch.Len())
	}
	if lines {
		list = append(list, lineLayout(b.batch))
	}
	size := 0
	for i := range list {
		size += list[i].size()
	}
	if size == 0 {
		return nil
	}
	at, err := k.space.take(b.number, size, wait)
	if err != nil {
		return err
	}
	for i := range list {
		var f field
		f, at = list[i].write(k.python.memory.data, at)
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
func (k *kernel) failBatch(b *inFlight, err error) {
	k.finishing.Lock()
	defer k.finishing.Unlock()
	k.mu.Lock()
	b.failed = err
	k.mu.Unlock()
	k.finishFailed()
}

// finishFailed completes the oldest batches as long as they have failed. The caller must
// hold k.finishing.
func (k *kernel) finishFailed() {
	for {
		k.mu.Lock()
		if len(k.batches) == 0 || k.batches[0].failed == nil {
			k.mu.Unlock()
			return
		}
		b := k.batches[0]
		k.batches = k.batches[1:]
		k.mu.Unlock()
		k.release(b)
		b.finish(b.failed)
	}
}

// release frees the shared memory of a batch.
func (k *kernel) release(b *inFlight) {
	k.space.give(b.number)
	if k.pool != nil {
		k.pool.space.give(b.number)
	}
	if b.file != nil {
		b.file.Close()
	}
}

// listen handles responses from Python until it exits, and finds out why it did.
func (k *kernel) listen(python *child) {
	defer close(k.ended)
	asked := extractor{}
	for {
		r, err := receive(python.channel)
		if err == nil {
			err = k.take(python, r, &asked)
		}
		if err != nil {
			if k.isClosing() {
				err = fault.KernelCrashed.New("the kernel is closed")
			} else {
				err = python.explain(err)
			}
			k.fail(err)
			return
		}
	}
}

func (k *kernel) take(python *child, r response, asked *extractor) error {
	k.noteSources(r.Sources)
	switch {
	case r.Type == "ask":
		return k.supply(python, r, asked)
	case r.Type == "space": // all earlier results have been consumed
		return python.channel.Send(request{Type: "taken", Taken: k.taken.Load()})
	case r.Type == "waits": // process, for a batch that prepare has not finished
		return k.adjust((*pace).waits)
	case r.Type == "answers":
		return k.takeAnswers(r)
	case r.Type == "blocked":
		k.noteBlocked(r)
		return nil
	case r.Type == "result", r.Type == "failed" && r.Batch > 0:
		return k.complete(python, r)
	}
	select {
	case k.replies <- r:
	default: // the caller has stopped waiting
	}
	return nil
}

// supply sends the fields that Python asks for, and adds them to those sent with
// later batches.
func (k *kernel) supply(python *child, r response, e *extractor) error {
	req := request{Type: "fields", Ask: r.Ask, Batch: r.Batch}
	k.mu.Lock()
	index := slices.IndexFunc(k.batches, func(b *inFlight) bool { return b.number == r.Batch })
	if index < 0 {
		k.mu.Unlock()
		req.Error = "this batch is already finished"
		return python.channel.Send(req)
	}
	b := k.batches[index]
	k.learn(r.Names, r.WantLines)
	k.mu.Unlock()
	for names := r.Names; len(names) > 0; names = names[min(len(names), maxFields):] {
		if err := k.fill(&req, e, b, names[:min(len(names), maxFields)], false, false); err != nil {
			req.Error = err.Error()
		}
	}
	if r.WantLines {
		if err := k.fill(&req, e, b, nil, true, false); err != nil {
			req.Error = err.Error()
		}
	}
	return python.channel.Send(req)
}

// learn notes fields to send with later batches. The caller must hold k.mu.
func (k *kernel) learn(names []string, lines bool) {
	k.lines = k.lines || lines
	for _, name := range names {
		if len(k.names) < maxFields && !slices.Contains(k.names, name) {
			k.names = append(k.names[:len(k.names):len(k.names)], name)
		}
	}
}

// complete finishes the oldest batch.
func (k *kernel) complete(python *child, r response) error {
	k.finishing.Lock()
	defer k.finishing.Unlock()
	k.mu.Lock()
	if len(k.batches) == 0 || k.batches[0].number != r.Batch {
		k.mu.Unlock()
		return fault.PythonAnswer.New("Python returned results for a batch that it was not given")
	}
	b := k.batches[0]
	k.batches = k.batches[1:]
	k.mu.Unlock()
	k.release(b)
	if r.Type == "failed" {
		b.finish(r.err())
	} else {
		b.finish(k.decode(python, b, &r))
		k.taken.Add(1)
	}
	k.finishFailed()
	if k.pool != nil {
		k.pool.answered()
		return nil
	}
	return k.adjust((*pace).taken)
}

// decode reads the results of a batch.
func (k *kernel) decode(python *child, b *inFlight, r *response) error {
	if r.Memory != nil {
		k.memory.Store(r.Memory)
	}
	d := &decoder{batch: b.batch, results: b.results, step: r.Step}
	err := d.decode(python.memory.data, &r.answer)
	if err == nil {
		python.memory.release(int(r.Block[0]), int(r.Block[0]+r.Block[1]))
	}
	return err
}

// adjust updates the pace of the threads that run prepare, and tells Python if it has
// changed.
func (k *kernel) adjust(update func(*pace)) error {
	if k.pace == nil {
		return nil
	}
	before := k.pace.wanted
	update(k.pace)
	if k.pace.wanted == before {
		return nil
	}
	return k.python.channel.Send(request{Type: "pace", Wanted: k.pace.wanted})
}

// fail completes all batches in flight, and all later ones, with err.
func (k *kernel) fail(err error) {
	k.mu.Lock()
	k.broken = err
	batches := k.batches
	k.batches = nil
	k.mu.Unlock()
	k.space.close()
	if k.pool != nil {
		k.pool.drop()
	}
	for _, b := range batches {
		b.finish(err)
	}
	k.failRecords(err)
}
