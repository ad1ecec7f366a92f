package fault

import (
	"fmt"
	"strings"
)

// How much of a failure is kept. A message is written into the output and into
// failures.jsonl for every failed record, and may quote all of it.
const (
	MaxMessage = 4 << 10
	MaxDetail  = 32 << 10
)

// Bounded returns e, or a copy whose message and detail are cut where they are too long,
// with a note of how much is missing. Of a message the beginning is kept, of a detail the
// end, where tracebacks name the exception.
func (e *Error) Bounded() *Error {
	if len(e.Message) <= MaxMessage && len(e.Detail) <= MaxDetail {
		return e
	}
	c := *e
	if cut := len(c.Message) - MaxMessage; cut > 0 {
		c.Message = fmt.Sprintf("%s… (%d bytes cut)", strings.ToValidUTF8(c.Message[:MaxMessage], ""), cut)
	}
	if cut := len(c.Detail) - MaxDetail; cut > 0 {
		c.Detail = fmt.Sprintf("(%d bytes cut) …%s", cut, strings.ToValidUTF8(c.Detail[cut:], ""))
	}
	return &c
}
