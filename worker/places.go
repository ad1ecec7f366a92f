package worker

import (
	"slices"
	"sync/atomic"

	"github.com/gpurun/gpurun/chunk"
	"github.com/gpurun/gpurun/internal/jsonline"
)

// columnNames are the columns that the kernel gave last. The writer notes them, and
// the reader looks for them while it checks the lines to come: so a line is gone over
// once, not a second time to find where its columns belong.
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

// places is where the columns stand in the records of a batch that are sent.
type places struct {
	names []string
	infos []jsonline.Info
}

// of is the place in record i; nil if these columns were not looked for.
func (p *places) of(i int, names []string) *jsonline.Info {
	if p == nil || i >= len(p.infos) || !slices.Equal(p.names, names) {
		return nil
	}
	return &p.infos[i]
}

// maxWanted is how many members can be looked for at once.
const maxWanted = 64

// lookFor makes the reader look for the columns too, as far as that helps: with
// --keep it is another line that they go into, and with --no-validate nothing is
// looked at here.
func (b *batchReader) lookFor(columns []string) {
	if len(b.options.Keep) > 0 || b.options.NoValidate || 1+len(b.inputs)+len(columns) > maxWanted {
		columns = nil
	}
	if b.check != nil && slices.Equal(columns, b.columns) {
		return
	}
	b.columns = columns
	b.check = jsonline.Want(slices.Concat([]string{chunk.ErrorMember}, b.inputs, columns)...)
}

// notePlaces keeps what the check of a record that is sent has found. spans is the
// memory for it.
func (b *batchReader) notePlaces(p *places, info *jsonline.Info, spans []jsonline.Span) []jsonline.Span {
	from := len(spans)
	spans = append(spans, info.Spans[1+len(b.inputs):]...)
	p.infos = append(p.infos, jsonline.Info{
		Object: info.Object, Close: info.Close, Empty: info.Empty, Spans: spans[from:len(spans):len(spans)],
	})
	return spans
}
