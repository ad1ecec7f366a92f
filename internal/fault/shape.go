package fault

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// shapeBytes limits a shape: messages that are equal up to here have one cause.
const shapeBytes = 160

// Shape returns what messages with the same cause have in common: the first line, without
// the numbers, names and quoted texts that differ from record to record.
//
//	could not convert string to float: 'n/a'   →  could not convert string to float: '…'
//	record 4711 has 3 tokens                   →  record # has # tokens
//	HTTP 404 from 10.0.0.1                     →  HTTP 404 from #.#.#.#
func Shape(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	var b strings.Builder
	for message != "" && b.Len() < shapeBytes {
		r, size := utf8.DecodeRuneInString(message)
		switch {
		case r == '\'' || r == '"' || r == '`':
			if end := strings.IndexRune(message[size:], r); end >= 0 && !apostrophe(b.String()) {
				b.WriteRune(r)
				b.WriteString("…")
				b.WriteRune(r)
				message = message[size+end+size:]
				continue
			}
			b.WriteRune(r)
			message = message[size:]
		case wordRune(r):
			word := message
			if end := strings.IndexFunc(message, func(r rune) bool { return !wordRune(r) }); end >= 0 {
				word = message[:end]
			}
			message = message[len(word):]
			if strings.ContainsFunc(word, unicode.IsDigit) && !strings.HasSuffix(b.String(), "HTTP ") { // a status is a cause
				word = "#"
			}
			b.WriteString(word)
		default:
			b.WriteRune(r)
			message = message[size:]
		}
	}
	return b.String()
}

// OfKernel reports whether the kernel itself failed, rather than rejected a record: it
// raised an exception, exited or did not respond.
func (e *Error) OfKernel() bool {
	return e.Kind == Batch || e.Kind == Crash || e.Kind == Timeout
}

// OfSettings reports whether a setting may be to blame that a file cannot be fetched, so
// that every record may fail in this way.
func (e *Error) OfSettings() bool { return e.Kind == Fetch && e.Value != "" }

// Alike reports whether two records failed with the same message. If the kernel itself
// failed, or a setting may be wrong, numbers and quoted texts may differ.
func (e *Error) Alike(other *Error) bool {
	if e.Message == other.Message {
		return true
	}
	return e.Kind == other.Kind && (e.OfKernel() || e.OfSettings()) && e.Value == other.Value && Shape(e.Message) == Shape(other.Message)
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// apostrophe reports whether a quotation mark after the text is an apostrophe within a
// word: can't.
func apostrophe(before string) bool {
	r, _ := utf8.DecodeLastRuneInString(before)
	return wordRune(r)
}
