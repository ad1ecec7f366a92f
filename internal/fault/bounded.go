package fault

import (
	"fmt"
	"strings"
)

// Limits on the size of a failure. A message is written to the output and to
// failures.jsonl for every failed record, and may quote the whole record.
const (
	MaxMessage = 4 << 10
	MaxDetail  = 32 << 10
)

// Bounded returns e, or a copy with an overlong message or detail cut and a note of how
// much is missing. It keeps the beginning of a message, but the end of a detail, where
// tracebacks name the exception. It drops a code with an overlong value, which is none.
func (e *Error) Bounded() *Error {
	advice := len(e.Code) + len(e.Value)
	if len(e.Message) <= MaxMessage && len(e.Detail) <= MaxDetail && advice <= MaxMessage {
		return e
	}
	c := *e
	if advice > MaxMessage {
		c.Code, c.Value = "", ""
	}
	if cut := len(c.Message) - MaxMessage; cut > 0 {
		c.Message = fmt.Sprintf("%s… (%d bytes cut)", strings.ToValidUTF8(c.Message[:MaxMessage], ""), cut)
	}
	if cut := len(c.Detail) - MaxDetail; cut > 0 {
		c.Detail = fmt.Sprintf("(%d bytes cut) …%s", cut, strings.ToValidUTF8(c.Detail[cut:], ""))
	}
	return &c
}
