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

// keep keeps a copy of the first record that the kernel computed. A kernel that can
// compute it again still works, and so does its device.
func (p *proof) keep(task *batchTask, i int) {
	if p.control != nil || len(task.records[i]) > maxControl || task.size(i)-len(task.records[i]) > maxControlFiles {
		return
	}
	each := 2 * len(task.inputs)
	p.control = &batchTask{
		sent: []int{0}, records: [][]byte{slices.Clone(task.records[i])},
		inputs: task.inputs, spans: slices.Clone(task.spans[i*each : (i+1)*each]),
		fetched: task.fetched,
	}
	for _, file := range task.filesOf(i, i+1) {
		p.control.files = append(p.control.files, slices.Clone(file))
	}
}
