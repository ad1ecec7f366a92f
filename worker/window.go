package worker

import (
	"time"

	"github.com/gpurun/gpurun/internal/wire"
)

// window is a run of consecutive records that are grouped by size (--group-by). It is read
// as one and written as one, in input order, but computed in batches of similar records.
// The kernel gets the records of each batch in input order too, so that it finds them in
// shared memory where the reader has put them.
type window struct {
	task      *batchTask // all of it, as it is written
	group     grouping   // of task.sent
	unsettled int        // records of task.sent without a verdict
	// suspect, if not -1, is the record of task.sent before which the chunk ends, because
	// another device must compute it.
	suspect int

	size    int // records per batch, when it was read
	batches int // good ones
	took    time.Duration
	known   map[int64]verdict // from before the chunk ended in this window, by number
}

const (
	windowBatches = wire.WindowBatches
	// windowShare is how many times --batch-bytes a window may hold.
	windowShare = 2
)

// newWindow makes a window of a batch as it was read. Its smallest records come first, or
// its largest.
func newWindow(task *batchTask, costs []int, size int, smallest bool) *window {
	sizes := make([]int, len(task.records))
	for i := range task.records {
		sizes[i] = task.size(i)
	}
	task.verdicts = make([]verdict, len(task.sent))
	return &window{task: task, group: newGrouping(costs, sizes, smallest), unsettled: len(task.sent), suspect: -1, size: size}
}

// next returns the next batch to compute. It is empty if there is none.
func (w *window) next(limit budget) *batchTask {
	at := w.group.next(limit)
	whole := w.task
	task := &batchTask{
		run: whole.run, batch: whole.batch, window: w, at: at, inputs: whole.inputs, fetched: whole.fetched,
		sent: make([]int, len(at)), records: make([][]byte, len(at)), costs: make([]int, len(at)),
		spans: make([]uint32, 0, 2*len(at)*len(whole.inputs)),
	}
	each := 2 * len(whole.inputs)
	for i, from := range at {
		task.sent[i], task.records[i], task.costs[i] = whole.sent[from], whole.records[from], w.group.costs[from]
		task.spans = append(task.spans, whole.spans[from*each:(from+1)*each]...)
		task.files = append(task.files, whole.filesOf(from, from+1)...)
	}
	return task
}

// settle takes the verdicts of a batch.
func (w *window) settle(task *batchTask) {
	for i := range task.sent {
		w.task.verdicts[task.at[i]] = task.verdict(i)
	}
	w.unsettled -= len(task.sent)
	w.task.batches = append(w.task.batches, task.took)
}

// prefix returns how many records of task.sent are settled before the first that is not.
func (w *window) prefix() int {
	for i, v := range w.task.verdicts {
		if v == (verdict{}) {
			return i
		}
	}
	return len(w.task.verdicts)
}

// endBefore ends the window before a record that another device must compute. What follows
// it is computed there, too.
func (w *window) endBefore(at int) {
	if w.suspect < 0 || at < w.suspect {
		w.suspect = at
	}
	w.group.only(func(i int) bool { return i < w.suspect })
}

// trial returns the window as a trial of its batch size. A size other than that asked for
// means that it is none: something else limited a batch.
func (w *window) trial() trial {
	n := len(w.task.batch.Records)
	of := trial{w.size, w.batches, n, w.took}
	if n != w.batches*w.size {
		of.size = 0
	}
	return of
}

// open reports whether the run has batches of a window that are not submitted yet.
func (r *chunkRun) open() bool {
	last := len(r.windows) - 1
	return last >= 0 && len(r.windows[last].group.order) > 0
}

// nextOf returns the next batch of a window. A batch whose verdicts are all known is not computed
// again; one of which some are missing is, with the same records as before.
func (r *chunkRun) nextOf(w *window) *batchTask {
	for {
		task := w.next(r.worker.sizes.budget(r.worker.setup.Records.BatchBytes))
		if w.task.batch.Rest().Records == 0 && len(w.group.order) <= ahead*w.size {
			r.reader.reportReadComplete() // or an idle worker could not have the next chunk
		}
		if len(task.sent) == 0 || !w.recall(task) {
			return task
		}
		w.settle(task)
		r.out.computed(len(task.sent))
	}
}

// leave gives up what is not submitted, and the window that will not be complete without it. It
// returns false if there is nothing to give up.
func (r *chunkRun) leave() bool {
	open := r.open()
	if r.ended && !open {
		return false
	}
	r.ended = true
	if open {
		w := r.windows[len(r.windows)-1]
		r.unsubmitted = w.task.batch.From(0)
		w.group.order = nil
	}
	return true
}

// settle takes a batch of a window whose records have verdicts, and passes the window to
// the writer when it is complete.
func (r *chunkRun) settle(task *batchTask) error {
	w := task.window
	w.settle(task)
	r.out.judge(task)
	r.out.computed(len(task.sent))
	if w.unsettled > 0 {
		return nil
	}
	r.windows = r.windows[1:] // batches end in the order of their windows
	if len(w.task.sent) > 0 && len(w.known) == 0 {
		r.worker.sizes.goodWindow(w.trial())
	}
	return r.write(w.task)
}

// endWindow ends the chunk before a window that is not complete, so that whoever continues there
// computes the same batches. If a record of it must be computed by another device, and all before
// that are, the chunk ends before that one instead.
func (r *chunkRun) endWindow() error {
	w := r.windows[0]
	r.windows, r.ended = nil, true
	n := w.prefix()
	if n != w.suspect || r.handedBack != nil && w.task.batch.Records[0].Index >= r.handedBack.First {
		r.worker.kept.keep(w)
		return nil
	}
	at := w.task.sent[n]
	elsewhere, after := w.task.batch.Alone(at)
	w.task.ready, w.task.sent, w.task.verdicts = at, w.task.sent[:n], w.task.verdicts[:n]
	if err := r.write(w.task); err != nil {
		return err
	}
	r.elsewhere, r.rest = &elsewhere, after
	return nil
}

// finishWindow computes what remains before a record for another device, one batch at a
// time, and ends the chunk there.
func (r *chunkRun) finishWindow() error {
	for len(r.windows) > 0 && r.windows[0].suspect >= 0 && !r.interrupted {
		task := r.nextOf(r.windows[0])
		if len(task.sent) == 0 {
			return r.endWindow()
		}
		if err := r.rerun(task, nil); err != nil {
			return err
		}
	}
	return nil
}
