package commit

import "os"

// writeback makes the disk start writing appended data early, so that the next durable
// point finds most of it done. It is only a hint: ranges that cannot be queued at once are
// left to the durable point.
type writeback struct {
	ranges chan writtenRange
	done   chan struct{}
}

type writtenRange struct {
	file           *os.File
	offset, length int64
}

// begin queues the last length bytes of a target.
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

// end must be called before the files are closed.
func (w *writeback) end() {
	if w.ranges != nil {
		close(w.ranges)
		<-w.done
		w.ranges = nil
	}
}
