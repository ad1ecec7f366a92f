package plugins

import "github.com/gpurun/gpurun/internal/jsonline"

// ErrorMember is the member with which a kernel can reject a record in the lines or the
// column that it returns, as with [Results.Fail]. Any program that writes JSON can do
// that. The message is the member's value if it is a string, or the "message" member of
// that value. null rejects nothing.
const ErrorMember = "_error"

var (
	errorMember   = jsonline.Want(ErrorMember)
	messageMember = jsonline.Want("message")
)

// Reported returns the JSON of the error that a line reports; nil if there is none.
func Reported(line []byte) []byte {
	value := errorMember.Value(line, 0)
	if string(value) == "null" {
		return nil
	}
	return value
}

// ReportedMessage returns the message in the value of a reported error.
func ReportedMessage(value []byte) string {
	text := value
	if message := messageMember.Value(value, 0); message != nil {
		text = message
	}
	if text[0] == '"' {
		text = jsonline.AppendUnquoted(nil, text)
	}
	if len(text) == 0 {
		return "the kernel returned an " + ErrorMember + " without a message"
	}
	return string(text)
}
