package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// Lines of OpenAI's batch files. A request is {"custom_id", "method", "url", "body"}. A
// result repeats the custom_id and has a response or an error:
//
//	{"id":"batch_req_000000000007","custom_id":"a","response":{"status_code":200,"request_id":"…","body":{…}},"error":null}
//
// The id is made of the record's number, so that a result depends on its request alone.

const batchID = `{"id":"batch_req_`

// The members that are read of a request, of a kernel's result and of its response.
var (
	requestMembers  = jsonline.Want("custom_id")
	resultMembers   = jsonline.Want("response")
	responseMembers = jsonline.Want("status_code", "body", "request_id")
)

// CustomID returns the custom_id of a request as JSON, or nil if it has none that is a
// string.
func CustomID(request []byte) []byte {
	value := member(requestMembers, request)
	if value == nil || value[0] != '"' {
		return nil
	}
	return value
}

// AppendBatchResult appends the result of the request with this number. lines is what the
// kernel made of the request: one line, whose member response is the answer: an object with
// a status_code, a body and perhaps a request_id, or else the body.
func AppendBatchResult(dst []byte, number int64, request, lines []byte) ([]byte, error) {
	id := CustomID(request)
	if id == nil {
		return dst, errors.New("the record has no custom_id: it is not a line of a batch file")
	}
	response := member(resultMembers, bytes.TrimSuffix(lines, newline))
	if response == nil {
		return dst, errors.New("the kernel did not return one object with the member response, which a line of a batch file needs")
	}
	var inner jsonline.Info
	dst = append(appendBatchStart(dst, number, id), `,"response":`...)
	switch complete := responseMembers.Scan(response, &inner) == nil && inner.Object && inner.Spans[0].Present() && inner.Spans[1].Present(); {
	case complete && inner.Spans[2].Present():
		dst = append(dst, response...)
	case complete:
		dst = fmt.Appendf(dst, `{"request_id":"req_%012d",`, number)
		dst = append(dst, response[1:]...)
	default:
		dst = fmt.Appendf(dst, `{"status_code":200,"request_id":"req_%012d","body":`, number)
		dst = append(append(dst, response...), '}')
	}
	return append(dst, ",\"error\":null}\n"...), nil
}

// appendBatchStart appends a result up to its custom_id, null without one.
func appendBatchStart(dst []byte, number int64, id []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	dst = fmt.Appendf(dst, `%s%012d","custom_id":`, batchID, number)
	return append(dst, id...)
}

// WriteBatchError writes the result of a request that failed.
func WriteBatchError(w io.Writer, number int64, request []byte, mark Mark) error {
	line := append(appendBatchStart(nil, number, CustomID(request)), `,"response":null,"error":{"code":`...)
	line = append(jsonline.AppendString(line, mark.Kind.String()), `,"message":`...)
	return writeAll(w, append(jsonline.AppendString(line, mark.Message), "}}\n"...))
}

// ErrNotBatchResult means that AppendBatchResult did not write a line.
var ErrNotBatchResult = errors.New("not the result of a batch file's request")

// Renumber returns a result with another number. A request_id that the server has given stays.
func Renumber(line []byte, number int64) ([]byte, error) {
	rest, isResult := bytes.CutPrefix(line, []byte(batchID))
	old, rest, found := bytes.Cut(rest, []byte(`"`))
	if !isResult || !found || len(old) > maxDigits {
		return nil, ErrNotBatchResult
	}
	for _, before := range []string{`,"response":{"request_id":"req_`, `,"response":{"status_code":200,"request_id":"req_`} {
		if made := fmt.Appendf(nil, `%s%s"`, before, old); bytes.Contains(rest, made) {
			rest = bytes.Replace(rest, made, fmt.Appendf(nil, `%s%012d"`, before, number), 1)
			break
		}
	}
	return append(fmt.Appendf(nil, `%s%012d"`, batchID, number), rest...), nil
}

// maxDigits is more than a number has.
const maxDigits = 20
