package worker

import "slices"

// A control is a record that the kernel has computed before: where another fails, it
// tells whether the kernel and its device are fine.

// proof is what a worker knows of a kernel that works.
type proof struct {
	control *work // a record that the kernel has computed; nil if none is known yet
	read    bool  // Setup.Proven was looked at for one
	given   bool  // it was shown that the kernel works, or that was tried
}

// maxControl is how long a record may be that is kept as a control.
const maxControl = 64 << 10

// keepControl keeps a copy of a record that the kernel has computed, the first of a
// worker's life: a kernel that computes it again is fine, and so is its device.
func (w *Worker) keepControl(job *work, i int) {
	if w.proof.control != nil || len(job.records[i]) > maxControl {
		return
	}
	each := 2 * len(job.inputs)
	w.proof.control = &work{
		sent: []int{0}, records: [][]byte{slices.Clone(job.records[i])},
		inputs: job.inputs, spans: slices.Clone(job.spans[i*each : (i+1)*each]),
	}
}

// controlRecord is the control, or else a record that an earlier worker has computed; nil
// if none is known.
func (w *Worker) controlRecord() *work {
	if w.proof.control == nil && w.setup.Proven != nil && !w.proof.read {
		w.proof.read = true
		if job, done, err := w.readProven(); err == nil {
			if len(job.sent) > 0 {
				w.keepControl(job, 0)
			}
			done()
		}
	}
	return w.proof.control
}

// readProven reads a record that an earlier worker has computed. The caller calls done when
// it is through with it.
func (w *Worker) readProven() (job *work, done func(), err error) {
	reader, err := w.openReader(*w.setup.Proven)
	if err != nil {
		return nil, nil, err
	}
	if job, err = reader.one(); err != nil {
		reader.close()
		return nil, nil, err
	}
	return job, reader.close, nil
}
