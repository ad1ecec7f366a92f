package record

import (
	"bufio"
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
	var info jsonline.Info
	if requestMembers.Scan(request, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return nil
	}
	if value := request[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]; value[0] == '"' {
		return value
	}
	return nil
}

// AppendBatchResult appends the result of the request with this number. lines is what the
// kernel made of the request: one line, whose member response is the answer: an object with
// a status_code, a body and perhaps a request_id, or else the body.
func AppendBatchResult(dst []byte, number int64, request, lines []byte) ([]byte, error) {
	id := CustomID(request)
	if id == nil {
		return dst, errors.New("the record has no custom_id: it is not a line of a batch file")
	}
	line := bytes.TrimSuffix(lines, newline)
	var info, inner jsonline.Info
	if resultMembers.Scan(line, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return dst, errors.New("the kernel did not return one object with the member response, which a line of a batch file needs")
	}
	response := line[info.Spans[0].ValueStart:info.Spans[0].ValueEnd]
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

// Renumber copies a result of size bytes and gives it another number. It does not allocate
// memory in proportion to the result.
func Renumber(w io.Writer, r *bufio.Reader, size, number int64) error {
	start, err := r.Peek(int(min(size, int64(len(batchID)+20)))) // 20: more digits than a number has
	if err != nil {
		return err
	}
	old, _, found := bytes.Cut(start[min(len(start), len(batchID)):], []byte(`"`))
	if !found || !bytes.HasPrefix(start, []byte(batchID)) {
		return ErrNotBatchResult
	}
	old = bytes.Clone(old) // the reader moves on
	skip := len(batchID) + len(old)
	if _, err := r.Discard(skip); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s%012d", batchID, number); err != nil {
		return err
	}
	rest := size - int64(skip)
	n, err := renumberRequest(w, r, rest, old, number)
	if err != nil {
		return err
	}
	_, err = io.CopyN(w, r, rest-n)
	return err
}

// renumberRequest copies the beginning of a result up to a request_id that AppendBatchResult
// has made, and gives that another number. It returns how much it has read: nothing if the
// server has given the id.
func renumberRequest(w io.Writer, r *bufio.Reader, rest int64, old []byte, number int64) (read int64, err error) {
	start, _ := r.Peek(int(min(rest, int64(r.Size()))))
	for _, before := range []string{`,"response":{"request_id":"req_`, `,"response":{"status_code":200,"request_id":"req_`} {
		at := bytes.Index(start, append([]byte(before), append(old, '"')...))
		if at < 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s%s%012d", start[:at], before, number); err != nil {
			return 0, err
		}
		n, err := r.Discard(at + len(before) + len(old))
		return int64(n), err
	}
	return 0, nil
}
