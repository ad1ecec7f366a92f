package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestBatchResult(t *testing.T) {
	const request = `{"custom_id":"a\"b","method":"POST","url":"/v1/x","body":{}}`
	for name, c := range map[string]struct{ request, lines, want string }{
		"whole response": {request, `{"id":"x","custom_id":"y","response":{"status_code":200,"request_id":"r","body":{"n":1}},"error":null}` + "\n",
			`{"id":"batch_req_000000000007","custom_id":"a\"b","response":{"status_code":200,"request_id":"r","body":{"n":1}},"error":null}`},
		"no request_id": {request, `{"custom_id":"y","response":{"status_code":200,"body":{"n":1}}}` + "\n",
			`{"id":"batch_req_000000000007","custom_id":"a\"b","response":{"request_id":"req_000000000007","status_code":200,"body":{"n":1}},"error":null}`},
		"body alone": {request, `{"custom_id":"y","response":{"n":1}}` + "\n",
			`{"id":"batch_req_000000000007","custom_id":"a\"b","response":{"status_code":200,"request_id":"req_000000000007","body":{"n":1}},"error":null}`},
		"text":            {request, `{"response":"hello"}` + "\n", `{"id":"batch_req_000000000007","custom_id":"a\"b","response":{"status_code":200,"request_id":"req_000000000007","body":"hello"},"error":null}`},
		"no response":     {request, request + "\n", ""},
		"two lines":       {request, "{\"response\":1}\n{\"response\":2}\n", ""},
		"not an object":   {request, "[1]\n", ""},
		"no custom_id":    {`{"body":{}}`, "{\"response\":1}\n", ""},
		"odd custom_id":   {`{"custom_id":7}`, "{\"response\":1}\n", ""},
		"nothing":         {request, "", ""},
		"invalid request": {`{"custom_id":"a"`, "{\"response\":1}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := AppendBatchResult([]byte("before"), 7, []byte(c.request), []byte(c.lines))
			if c.want == "" {
				if err == nil || string(got) != "before" {
					t.Errorf("%s, %v", got, err)
				}
				return
			}
			if err != nil || string(got) != "before"+c.want+"\n" {
				t.Errorf("%s, %v", got, err)
			}
			renumbered, err := Renumber([]byte(c.want+"\n"), 1234567890123456)
			if err != nil {
				t.Fatal(err)
			}
			numbers := strings.NewReplacer("batch_req_000000000007", "batch_req_1234567890123456", `"request_id":"req_000000000007"`, `"request_id":"req_1234567890123456"`)
			if want := numbers.Replace(c.want) + "\n"; string(renumbered) != want {
				t.Errorf("%s, want %s", renumbered, want)
			}
		})
	}
}

func TestBatchError(t *testing.T) {
	for request, id := range map[string]any{
		`{"custom_id":"é","body":{}}`: "é", `{"custom_id":`: nil, `[]`: nil, `{"custom_id":5}`: nil, "\xff": nil, `{"custom_id":"1","custom_id":"2"}`: "2",
	} {
		var line bytes.Buffer
		if err := WriteBatchError(&line, 8, []byte(request), Mark{Kind: fault.Record, Message: "no \"text\"\n"}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			ID       string
			CustomID any `json:"custom_id"`
			Response any
			Error    struct{ Code, Message string }
		}
		if err := json.Unmarshal(line.Bytes(), &got); err != nil || bytes.Count(line.Bytes(), newline) != 1 {
			t.Fatalf("%s: %v", line.Bytes(), err)
		}
		if got.ID != "batch_req_000000000008" || got.CustomID != id || got.Response != nil || got.Error.Code != "record" || got.Error.Message != "no \"text\"\n" {
			t.Errorf("%s becomes %s", request, line.Bytes())
		}
	}
}

func TestRenumberRefuses(t *testing.T) {
	for _, line := range []string{"", "{}\n", `{"id":"batch_req_`, `{"id":"batch_req_00000000000000000000000"}` + "\n", `{"id":"other_000000000001"}` + "\n"} {
		if _, err := Renumber([]byte(line), 1); err == nil {
			t.Errorf("%q is renumbered", line)
		}
	}
}
