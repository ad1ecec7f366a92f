package jsonline

import (
	"fmt"
	"unicode/utf8"
)

// SyntaxError reports why a line is invalid, and at which byte.
type SyntaxError struct {
	Offset int    // of the offending byte, from 0; the line's length if it ends too early
	Msg    string // for people; includes the offset if there is an offending byte
}

func (e *SyntaxError) Error() string { return e.Msg }

// newSyntaxError derives the message from the offending byte.
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
