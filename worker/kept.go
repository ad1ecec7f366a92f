package worker

// kept are the verdicts of a window in which a chunk ended: a stop does not wait for the rest of
// the window. If this worker continues there, as after a checkpoint, it does not compute its
// batches again. They belong to one window, so their memory is bounded.
type kept struct {
	first    int64             // the window's first record
	verdicts map[int64]verdict // by the record's number in the input
}

// keep takes the verdicts of the window so far.
func (k *kept) keep(w *window) {
	records := w.task.batch.Records
	*k = kept{first: records[0].Index, verdicts: make(map[int64]verdict)}
	for i, v := range w.task.verdicts {
		if v != (verdict{}) {
			k.verdicts[records[w.task.sent[i]].Index] = v
		}
	}
}

// giveTo gives the verdicts to the window, if they are of it.
func (k *kept) giveTo(w *window) {
	if w.task.batch.Records[0].Index == k.first {
		w.known, *k = k.verdicts, kept{}
	}
}

// recall gives a batch the verdicts of its records. It returns false if one is not known.
func (w *window) recall(task *batchTask) bool {
	verdicts := make([]verdict, len(task.sent))
	for i, at := range task.sent {
		v, known := w.known[task.batch.Records[at].Index]
		if !known {
			return false
		}
		verdicts[i] = v
	}
	task.verdicts = verdicts
	return true
}
