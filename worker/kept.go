package worker

// kept are verdicts of a window that ended before they could be written: a stop does not
// wait for the batches that come before them. If the rest of the chunk comes back to this
// worker, as after a checkpoint, these records are not computed again. They belong to one
// window, so their memory is bounded.
type kept struct {
	verdicts map[int64]verdict // by the record's number in the input
	last     int64
}

// keep takes the verdicts of a window from its i-th record on.
func (k *kept) keep(w *window, from int) {
	*k = kept{verdicts: make(map[int64]verdict)}
	for i := from; i < len(w.task.verdicts); i++ {
		if v := w.task.verdicts[i]; v != (verdict{}) {
			k.last = w.task.batch.Records[w.task.sent[i]].Index
			k.verdicts[k.last] = v
		}
	}
}

// reuse settles the records of a window whose verdicts are known.
func (k *kept) reuse(w *window) {
	if len(k.verdicts) == 0 {
		return
	}
	records := w.task.batch.Records
	for i, at := range w.task.sent {
		if v, known := k.verdicts[records[at].Index]; known {
			w.task.verdicts[i] = v
			w.unsettled--
			w.reused = true
		}
	}
	if w.reused {
		w.group.only(func(i int) bool { return w.task.verdicts[i] == (verdict{}) })
	}
	if records[len(records)-1].Index >= k.last && records[0].Index <= k.last {
		*k = kept{}
	}
}
