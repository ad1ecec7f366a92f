package worker

import (
	"slices"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk/record"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// columnNames are the columns that the kernel returned last. The writer stores them, and
// the reader scans for them while it validates the next lines, so that each line is scanned
// once instead of a second time to find where its columns belong.
type columnNames struct{ names atomic.Pointer[[]string] }

func (c *columnNames) note(names []string) {
	if c != nil {
		c.names.Store(&names)
	}
}

func (c *columnNames) get() []string {
	if names := c.names.Load(); names != nil {
		return *names
	}
	return nil
}

// places holds the positions of the columns in the records that are sent.
type places struct {
	names []string
	infos []jsonline.Info
}

// of returns the positions in record i, or nil if the reader did not scan for these
// columns.
func (p *places) of(i int, names []string) *jsonline.Info {
	if p == nil || i >= len(p.infos) || !slices.Equal(p.names, names) {
		return nil
	}
	return &p.infos[i]
}

// lookFor makes the reader scan for the columns too, if that helps. With --keep they are
// spliced into a different line, and with --no-validate lines are not scanned here.
func (b *batchReader) lookFor(columns []string) {
	if len(b.options.Keep) > 0 || b.options.NoValidate {
		columns = nil
	}
	if b.check != nil && slices.Equal(columns, b.columns) {
		return
	}
	b.columns = columns
	names := slices.Concat([]string{record.ErrorMember}, b.inputs)
	if b.options.GroupBy != "" {
		names = append(names, b.options.GroupBy)
	}
	b.check = jsonline.Want(append(names, columns...)...)
}

// fixed returns how many members every line is scanned for: the mark, the inputs, and the
// one to group by.
func (b *batchReader) fixed() int {
	n := 1 + len(b.inputs)
	if b.options.GroupBy != "" {
		n++
	}
	return n
}

// cost returns what a record costs in a batch. info is of the scan that validated it. A
// line that was not validated is scanned here; it costs nothing if it is not valid.
func (b *batchReader) cost(line []byte, info *jsonline.Info) int {
	if b.trusts(line) && b.check.Scan(line, info) != nil {
		return 0
	}
	span := info.Spans[1+len(b.inputs)]
	return costOf(line[span.ValueStart:span.ValueEnd])
}

// notePlaces stores the positions found while validating a record. spans provides the
// memory.
func (b *batchReader) notePlaces(p *places, info *jsonline.Info, spans []jsonline.Span) []jsonline.Span {
	from := len(spans)
	spans = append(spans, info.Spans[b.fixed():]...)
	p.infos = append(p.infos, jsonline.Info{
		Object: info.Object, Close: info.Close, Members: info.Members, Spans: spans[from:len(spans):len(spans)],
	})
	return spans
}
