package jsonline

import (
	"fmt"
	"unicode/utf8"
)

// SyntaxError is why, and from which byte on, a line is not valid.
type SyntaxError struct {
	Offset int    // of the offending byte, from 0; the line's length if it ends too early
	Msg    string // for people; says the offset where there is a byte to point at
}

func (e *SyntaxError) Error() string { return e.Msg }

// newSyntaxError looks at the offending byte once more to say what is wrong.
func newSyntaxError(line []byte, offset int, why failure) *SyntaxError {
	e := &SyntaxError{Offset: offset}
	if why == tooDeep {
		e.Msg = fmt.Sprintf("nested deeper than %d", maxDepth)
		return e
	}
	switch r, size := utf8.DecodeRune(line[offset:]); {
	case size == 0:
		e.Msg = "unexpected end of line"
	case r == utf8.RuneError && size == 1:
		e.Msg = fmt.Sprintf("invalid UTF-8 at byte %d", offset)
	default:
		e.Msg = fmt.Sprintf("invalid character %q at byte %d", r, offset)
	}
	return e
}
