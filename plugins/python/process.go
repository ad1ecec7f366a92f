package python

import (
	"context"
	"slices"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/plugins"
)

// Process gives a batch to Python and does not wait for it: its fields are written
// while Python computes the batch before.
func (k *kernel) Process(_ context.Context, batch plugins.Batch, results *plugins.Results) error {
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

	o := order{Type: "batch", Batch: b.number, Count: batch.Len(), Taken: k.taken.Load()}
	if err := k.fill(&o, &k.extract, b, names, lines, true); err != nil {
		k.withdraw(b, err)
		return nil
	}
	// A connection that is broken is found by its reader, who tells why.
	_ = k.python.channel.send(o)
	return nil
}

// fill writes fields of a batch, and its lines, into the shared memory.
func (k *kernel) fill(o *order, e *extractor, b *inFlight, names []string, lines, wait bool) error {
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
			o.Lines = &f
		} else {
			o.Fields = append(o.Fields, f)
		}
	}
	return nil
}

// withdraw fails a batch that Python never got. The ones before it come first.
func (k *kernel) withdraw(b *inFlight, err error) {
	k.mu.Lock()
	index := slices.Index(k.batches, b)
	if index < 0 { // everything has failed meanwhile
		k.mu.Unlock()
		return
	}
	if index > 0 {
		before := k.batches[index-1].results
		k.mu.Unlock()
		<-before.Done()
		k.mu.Lock()
		index = slices.Index(k.batches, b)
	}
	if index >= 0 {
		k.batches = slices.Delete(k.batches, index, index+1)
	}
	k.mu.Unlock()
	b.finish(err)
}

// listen takes what comes from Python until its end, which it explains.
func (k *kernel) listen(python *child) {
	defer close(k.ended)
	asked := extractor{}
	for {
		r, err := python.channel.receive()
		if err == nil {
			err = k.take(python, r, &asked)
		}
		if err != nil {
			k.fail(k.explain(python, err))
			return
		}
	}
}

func (k *kernel) take(python *child, r report, asked *extractor) error {
	k.noteSources(r.Sources)
	switch {
	case r.Type == "ask":
		return k.supply(python, r, asked)
	case r.Type == "space": // all results that came before it are taken
		return python.channel.send(order{Type: "taken", Taken: k.taken.Load()})
	case r.Type == "result", r.Type == "failed" && r.Batch > 0:
		return k.complete(python, r)
	}
	select {
	case k.replies <- r:
	default: // nobody asked, or has left
	}
	return nil
}

// supply sends what Python asks for of a batch, and remembers to send it along with
// those to come.
func (k *kernel) supply(python *child, r report, e *extractor) error {
	o := order{Type: "fields", Ask: r.Ask, Batch: r.Batch}
	k.mu.Lock()
	index := slices.IndexFunc(k.batches, func(b *inFlight) bool { return b.number == r.Batch })
	if index < 0 {
		k.mu.Unlock()
		o.Error = "this batch is over"
		return python.channel.send(o)
	}
	b := k.batches[index]
	k.learn(r.Names, r.WantLines)
	k.mu.Unlock()
	for names := r.Names; len(names) > 0; names = names[min(len(names), maxFields):] {
		if err := k.fill(&o, e, b, names[:min(len(names), maxFields)], false, false); err != nil {
			o.Error = err.Error()
		}
	}
	if r.WantLines {
		if err := k.fill(&o, e, b, nil, true, false); err != nil {
			o.Error = err.Error()
		}
	}
	return python.channel.send(o)
}

// learn notes what to send along; k.mu is held.
func (k *kernel) learn(names []string, lines bool) {
	k.lines = k.lines || lines
	for _, name := range names {
		if len(k.names) < maxFields && !slices.Contains(k.names, name) {
			k.names = append(k.names[:len(k.names):len(k.names)], name)
		}
	}
}

// complete finishes the oldest batch.
func (k *kernel) complete(python *child, r report) error {
	k.mu.Lock()
	if len(k.batches) == 0 || k.batches[0].number != r.Batch {
		k.mu.Unlock()
		return fault.New(fault.Crash, "Python answered a batch that it was not asked")
	}
	b := k.batches[0]
	k.batches = k.batches[1:]
	k.mu.Unlock()
	k.space.give(b.number)
	if r.Type == "failed" {
		b.finish(r.failure())
		return nil
	}
	if r.Memory != nil {
		k.memory.Store(r.Memory)
	}
	d := &decoder{batch: b.batch, results: b.results, step: r.Step, nanFails: k.config.NaN == "error"}
	err := d.decode(python.memory.data, &r.answer)
	if err == nil {
		python.memory.release(int(r.Block[0]), int(r.Block[0]+r.Block[1]))
	}
	b.finish(err)
	k.taken.Add(1)
	return nil
}

// fail completes everything in flight with err, and everything to come.
func (k *kernel) fail(err error) {
	k.mu.Lock()
	k.broken = err
	batches := k.batches
	k.batches = nil
	k.mu.Unlock()
	k.space.close()
	for _, b := range batches {
		b.finish(err)
	}
}

// explain turns the end of the connection into its cause: why Python is gone.
func (k *kernel) explain(python *child, err error) error {
	k.mu.Lock()
	closing := k.closing
	k.mu.Unlock()
	if closing {
		return fault.New(fault.Crash, "the kernel is closed")
	}
	if e := fault.As(err); e != nil { // it broke the protocol
		python.process.KillGroup()
		return e
	}
	how, outside := python.ending()
	ended := fault.New(fault.Crash, "the Python process ended: %s", how).WithDetail(python.lastWords())
	if outside {
		return ended.Signed(fault.Outside)
	}
	if _, sign := plugins.Diagnose(ended.Detail); sign == fault.HostMemory {
		ended.Kind, ended.Sign = fault.OOM, sign
	}
	return ended
}
