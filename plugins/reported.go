package plugins

import (
	"bytes"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// ErrorMember is the member of a record by which a kernel rejects it, like
// [Results.Fail], where it returns lines or a column of that name: a program that knows
// nothing but JSON can do that. Its value, if it is a string, or the member message of
// it, is the message; null rejects nothing.
const ErrorMember = "_error"

var (
	errorMember   = jsonline.Want(ErrorMember)
	messageMember = jsonline.Want("message")
	jsonNull      = []byte("null")
)

// Reported is the error that stands in a line, nil if there is none.
func Reported(line []byte) []byte {
	var info jsonline.Info
	if err := errorMember.Scan(line, &info); err != nil || !info.Object || !info.Spans[0].Present() {
		return nil
	}
	value := line[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]
	if bytes.Equal(value, jsonNull) {
		return nil
	}
	return value
}

// ReportedMessage is what a kernel says with the value of its error.
func ReportedMessage(value []byte) string {
	text := value
	var info jsonline.Info
	if messageMember.Scan(value, &info) == nil && info.Object && info.Spans[0].Present() {
		text = value[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]
	}
	if text[0] == '"' {
		text = jsonline.AppendUnquoted(nil, text)
	}
	if len(text) == 0 {
		return "the kernel returned an " + ErrorMember + " without a message"
	}
	return string(text)
}
