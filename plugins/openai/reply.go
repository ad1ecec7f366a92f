package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/gpurun/gpurun/internal/figures"
	"github.com/gpurun/gpurun/internal/jsonline"
	"github.com/gpurun/gpurun/plugins"
)

// reply is a server's good answer.
type reply struct {
	status    int
	requestID string
	body      []byte // JSON
	// usage, choices and data are members of the body, nil if it does not have them.
	usage, choices, data []byte
}

// replyMembers finds the members of an answer that matter.
var replyMembers = jsonline.Want("usage", "choices", "data")

// read checks that the body is JSON and finds its members, in one pass.
func (r *reply) read(body []byte) bool {
	var info jsonline.Info
	if replyMembers.Scan(body, &info) != nil {
		if !json.Valid(body) {
			return false
		}
		body = bytes.ToValidUTF8(body, []byte("\ufffd"))
		if replyMembers.Scan(body, &info) != nil {
			return false
		}
	}
	r.body = body
	if info.Object {
		for i, member := range []*[]byte{&r.usage, &r.choices, &r.data} {
			if at := info.Spans[i]; at.Present() {
				*member = body[at.ValueStart:at.ValueEnd]
			}
		}
	}
	return true
}

// figures returns the tokens that the answer has used, nil if the server does not say.
func (r reply) figures() map[string]int64 {
	var prompt, completion, total int64
	jsonline.Members(r.usage, func(_ []byte, name string, value []byte) bool {
		n, _ := strconv.ParseInt(string(value), 10, 64)
		switch name {
		case "prompt_tokens", "input_tokens": // the second ones are those of /v1/responses
			prompt = max(prompt, n)
		case "completion_tokens", "output_tokens":
			completion = max(completion, n)
		case "total_tokens":
			total = n
		}
		return true
	})
	if total = max(total, prompt+completion); total <= 0 {
		return nil
	}
	counts := map[string]int64{figures.PromptTokens: prompt, figures.CompletionTokens: completion, figures.TotalTokens: total}
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n <= 0 })
	return counts
}

// answer turns a good answer into the result of the record.
func (s *settings) answer(record plugins.Record, sent request, got reply) plugins.Answer {
	if sent.id != nil {
		return plugins.Replaced(batchResult(sent.id, got))
	}
	value := s.find(got)
	if value == nil {
		var err error
		if value, err = s.extract(got.body); err != nil {
			return plugins.Rejected("the server's answer %s", err)
		}
	}
	var info jsonline.Info
	line := record.Bytes()
	if err := s.output.Scan(line, &info); err != nil || !info.Object {
		return plugins.Rejected("the record is not a JSON object: member %q cannot be added to it", s.Output)
	}
	return plugins.Replaced(jsonline.Splice(nil, line, &info, []jsonline.Member{{Name: s.Output, Value: value}}))
}

// Members of a choice, of a message and of an embedding.
var (
	choiceMembers    = jsonline.Want("message", "text")
	messageMembers   = jsonline.Want("content")
	embeddingMembers = jsonline.Want("embedding")
)

// find returns the part of an answer that Output gets, as JSON, without decoding the answer.
// It returns nil if the answer is not the usual one: extract knows what else there is.
func (s *settings) find(got reply) []byte {
	var value []byte
	switch s.Endpoint {
	case Embeddings:
		value = memberOf(jsonline.First(got.data), embeddingMembers, 0)
		if len(value) == 0 || value[0] != '[' || bytes.ContainsAny(value, "\r\n") {
			return nil
		}
		return value
	case Completions:
		value = memberOf(jsonline.First(got.choices), choiceMembers, 1)
	default:
		value = memberOf(memberOf(jsonline.First(got.choices), choiceMembers, 0), messageMembers, 0)
	}
	if len(value) == 0 || value[0] != '"' {
		return nil
	}
	for _, special := range []string{`\`, "\u2028", "\u2029"} { // encode writes them its own way
		if bytes.Contains(value, []byte(special)) {
			return encode(string(jsonline.AppendUnquoted(nil, value)))
		}
	}
	return value
}

// memberOf returns a member of an object, nil if it does not have it.
func memberOf(object []byte, wanted *jsonline.Wanted, i int) []byte {
	var info jsonline.Info
	if wanted.Scan(object, &info) != nil || !info.Object || !info.Spans[i].Present() {
		return nil
	}
	return object[info.Spans[i].ValueStart:info.Spans[i].ValueEnd]
}

// extract returns the part of an answer that Output gets, as JSON.
func (s *settings) extract(body []byte) ([]byte, error) {
	var answer struct {
		Choices []struct {
			Text    *string `json:"text"`
			Message *struct {
				Content *string `json:"content"`
				Refusal *string `json:"refusal"`
			} `json:"message"`
		} `json:"choices"`
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("does not have the form of an answer to %s", paths[s.Endpoint])
	}
	if said := serverMessage(body); said != "" && len(answer.Choices) == 0 && len(answer.Data) == 0 {
		return nil, fmt.Errorf("is an error, although its status is 200: %s", said)
	}
	switch {
	case s.Endpoint == Embeddings && len(answer.Data) > 0 && len(answer.Data[0].Embedding) > 0:
		return oneLine(answer.Data[0].Embedding), nil
	case s.Endpoint == Embeddings:
		return nil, errors.New("has no data[0].embedding")
	case len(answer.Choices) == 0:
		return nil, errors.New("has no choices")
	case s.Endpoint == Completions && answer.Choices[0].Text != nil:
		return encode(*answer.Choices[0].Text), nil
	case s.Endpoint == Completions:
		return nil, errors.New("has no choices[0].text")
	case answer.Choices[0].Message != nil && answer.Choices[0].Message.Content != nil:
		return encode(*answer.Choices[0].Message.Content), nil
	case answer.Choices[0].Message != nil && answer.Choices[0].Message.Refusal != nil:
		return nil, fmt.Errorf("is a refusal: %s", *answer.Choices[0].Message.Refusal)
	}
	return nil, errors.New("has no choices[0].message.content")
}

// batchResult returns the result of a line of a batch file: its custom_id and the response. A
// job whose format is that of batch files completes it.
func batchResult(id json.RawMessage, got reply) []byte {
	line := make([]byte, 0, len(got.body)+len(id)+len(got.requestID)+96)
	line = append(append(append(line, `{"custom_id":`...), id...), `,"response":{"status_code":`...)
	line = strconv.AppendInt(line, int64(got.status), 10)
	if got.requestID != "" {
		line = jsonline.AppendString(append(line, `,"request_id":`...), got.requestID)
	}
	return append(append(append(line, `,"body":`...), oneLine(got.body)...), "}}"...)
}

// oneLine returns valid JSON without line breaks.
func oneLine(body []byte) []byte {
	body = bytes.TrimSpace(body)
	if bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 {
		return body
	}
	var b bytes.Buffer
	_ = json.Compact(&b, body) // it is valid
	return b.Bytes()
}
