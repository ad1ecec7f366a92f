package worker

import "slices"

// A control is a record that the kernel has computed before. When another record fails, it
// shows whether the kernel and its device still work.

// proof is what a worker knows about whether its kernel works.
type proof struct {
	control *batchTask // a record that the kernel has computed; nil if none is known yet
	read    bool       // Setup.Proven was searched for one
	given   bool       // the kernel was shown to work, or that was tried
}

// maxControl limits the size of a record that is kept as a control, and maxControlFiles
// that of its files.
const (
	maxControl      = 64 << 10
	maxControlFiles = 1 << 20
)

// keepControl keeps a copy of the first record that the kernel computed. A kernel that can
// compute it again still works, and so does its device.
func (w *Worker) keepControl(task *batchTask, i int) {
	if w.proof.control != nil || len(task.records[i]) > maxControl || task.size(i)-len(task.records[i]) > maxControlFiles {
		return
	}
	each := 2 * len(task.inputs)
	w.proof.control = &batchTask{
		sent: []int{0}, records: [][]byte{slices.Clone(task.records[i])},
		inputs: task.inputs, spans: slices.Clone(task.spans[i*each : (i+1)*each]),
		fetched: task.fetched,
	}
	for _, file := range task.filesOf(i, i+1) {
		w.proof.control.files = append(w.proof.control.files, slices.Clone(file))
	}
}

// controlRecord returns the control, or else a record that an earlier worker computed, or
// nil if none is known.
func (w *Worker) controlRecord() *batchTask {
	if w.proof.control == nil && w.setup.Proven != nil && !w.proof.read {
		w.proof.read = true
		if task, done, err := w.readProven(); err == nil {
			if len(task.sent) > 0 {
				w.keepControl(task, 0)
			}
			done()
		}
	}
	return w.proof.control
}

// readProven reads a record that an earlier worker computed. The caller must call done when
// it no longer needs the record.
func (w *Worker) readProven() (task *batchTask, done func(), err error) {
	reader, err := w.openReader(*w.setup.Proven)
	if err != nil {
		return nil, nil, err
	}
	if task, err = reader.one(); err != nil {
		reader.close()
		return nil, nil, err
	}
	return task, reader.close, nil
}
