package worker

import "slices"

// A control is a record that the kernel has computed before. When another record fails, it
// shows whether the kernel and its device still work.

// proof is what a worker knows about whether its kernel works.
type proof struct {
	control *batchTask // a record that the kernel has computed; nil if none is known yet
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
	p.control = task.pick([]int{i})
	p.control.lane, p.control.batch, p.control.group, p.control.costs = nil, nil, nil, nil
	for _, memory := range [][][]byte{p.control.records, p.control.files} {
		for k := range memory {
			memory[k] = slices.Clone(memory[k])
		}
	}
}
