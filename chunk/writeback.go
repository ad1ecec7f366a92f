package chunk

import "os"

// writeback lets the disk begin with what was appended, while more is: the next
// durable point then finds most of it done, instead of waiting for all of it. It is a
// hint: what cannot be done at once is left to that.
type writeback struct {
	ranges chan writtenRange
	done   chan struct{}
}

type writtenRange struct {
	file           *os.File
	offset, length int64
}

// begin is for the last bytes of a target.
func (w *writeback) begin(t *target, length int64) {
	if length == 0 || t.file == nil || t.temporary == "" {
		return
	}
	if w.ranges == nil {
		w.ranges, w.done = make(chan writtenRange, 16), make(chan struct{})
		go w.run()
	}
	select {
	case w.ranges <- writtenRange{file: t.file, offset: t.size - t.begun - length, length: length}:
	default:
	}
}

func (w *writeback) run() {
	defer close(w.done)
	for r := range w.ranges {
		startWriteback(r.file, r.offset, r.length)
	}
}

// end comes before the files are closed.
func (w *writeback) end() {
	if w.ranges != nil {
		close(w.ranges)
		<-w.done
		w.ranges = nil
	}
}
