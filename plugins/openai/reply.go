package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// usage, choices, data and incomplete are members of the body, nil if it does not have them.
	usage, choices, data, incomplete []byte
	isObject                         bool
}

// replyMembers finds the members of an answer that matter.
var replyMembers = jsonline.Want("usage", "choices", "data", "incomplete_details")

var (
	errNotJSON = errors.New("is not valid JSON")
	errNotUTF8 = errors.New("is not valid UTF-8")
)

// read checks that the body is JSON and finds its members, in one pass.
func (r *reply) read(body []byte) error {
	var info jsonline.Info
	if replyMembers.Scan(body, &info) != nil {
		if json.Valid(body) {
			return errNotUTF8
		}
		return errNotJSON
	}
	r.body, r.isObject = body, info.Object
	if info.Object {
		for i, member := range []*[]byte{&r.usage, &r.choices, &r.data, &r.incomplete} {
			if at := info.Spans[i]; at.Present() {
				*member = body[at.ValueStart:at.ValueEnd]
			}
		}
	}
	return nil
}

// truncated reports whether the server cut off the answer, or one of its choices, at a limit of
// tokens.
func (r reply) truncated() bool {
	for choice := range jsonline.Elements(r.choices) {
		if string(choiceMembers.Value(choice, choiceFinish)) == `"length"` {
			return true
		}
	}
	return string(reasonMember.Value(r.incomplete, 0)) == `"max_output_tokens"` // of /v1/responses
}

// figures returns the tokens that the answer has used, as far as the server says, and whether it
// is truncated.
func (r reply) figures() map[string]int64 {
	var prompt, completion, total int64
	jsonline.Members(r.usage, func(_ []byte, name string, value []byte) bool {
		n, _ := strconv.ParseInt(string(value), 10, 64)
		switch name {
		case "prompt_tokens", "input_tokens": // the second ones in /v1/responses
			prompt = max(prompt, n)
		case "completion_tokens", "output_tokens":
			completion = max(completion, n)
		case "total_tokens":
			total = n
		}
		return true
	})
	counts := map[string]int64{figures.PromptTokens: prompt, figures.CompletionTokens: completion, figures.TotalTokens: max(total, prompt+completion)}
	if r.truncated() {
		counts[figures.Truncated] = 1
	}
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n <= 0 })
	return counts
}

// errCutOff is why a record fails whose answer is truncated.
var errCutOff = errors.New("the server cut the answer off at a limit of tokens (finish_reason length)")

// answer turns a good answer into the result of the record.
func (s *settings) answer(record plugins.Record, sent request, got reply) plugins.Answer {
	if s.Truncated == TruncatedFail && got.truncated() {
		return plugins.Rejected("%s", errCutOff)
	}
	if sent.id != nil {
		return plugins.Replaced(batchResult(sent.id, got))
	}
	value, err := got.extract(s)
	switch {
	case err != nil && got.truncated(): // perhaps before its text began
		return plugins.Rejected("the server's answer %s: %s", err, errCutOff)
	case err != nil:
		return plugins.Rejected("the server's answer %s", err)
	}
	var info jsonline.Info
	line := record.Bytes()
	if err := s.output.Scan(line, &info); err != nil || !info.Object {
		return plugins.Rejected("the record is not a JSON object: member %q cannot be added to it", s.Output)
	}
	return plugins.Replaced(jsonline.Splice(nil, line, &info, []jsonline.Member{{Name: s.Output, Value: value}}))
}

// Members of a choice, of a message, of an embedding, and of the details of an incomplete answer.
var (
	choiceMembers    = jsonline.Want("message", "text", "finish_reason", "index")
	messageMembers   = jsonline.Want("content", "refusal")
	embeddingMembers = jsonline.Want("embedding")
	reasonMember     = jsonline.Want("reason")
)

const choiceMessage, choiceText, choiceFinish, choiceIndex = 0, 1, 2, 3

// extract returns the part of an answer that Output gets, as JSON.
func (r reply) extract(s *settings) ([]byte, error) {
	list := r.choices
	if s.Endpoint == Embeddings {
		list = r.data
	}
	if !r.isObject || len(list) > 0 && list[0] != '[' && string(list) != "null" {
		return nil, fmt.Errorf("does not have the form of an answer to %s", paths[s.Endpoint])
	}
	elements := slices.Collect(jsonline.Elements(list))
	if len(elements) == 0 {
		if said := serverMessage(r.body); said != "" {
			return nil, fmt.Errorf("is an error, although its status is 200: %s", said)
		}
		elements = append(elements, nil)
	}
	switch {
	case s.Endpoint == Embeddings:
		if value := embeddingMembers.Value(elements[0], 0); len(value) > 0 {
			return oneLine(value), nil
		}
		return nil, errors.New("has no data[0].embedding")
	case elements[0] == nil:
		return nil, errors.New("has no choices")
	case len(elements) == 1 && !s.several:
		return textOfChoice(elements[0], s.Endpoint, 0)
	}
	return textsOf(elements, s.Endpoint)
}

// textsOf returns the texts of several choices as a list, by the index of the choices.
func textsOf(choices [][]byte, endpoint string) ([]byte, error) {
	index := func(choice []byte) int64 {
		n, _ := strconv.ParseInt(string(choiceMembers.Value(choice, choiceIndex)), 10, 64)
		return n
	}
	slices.SortStableFunc(choices, func(a, b []byte) int { return cmp.Compare(index(a), index(b)) })
	texts := make([][]byte, len(choices))
	for i, choice := range choices {
		var err error
		if texts[i], err = textOfChoice(choice, endpoint, i); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]")), nil
}

// textOfChoice returns the text of choice i.
func textOfChoice(choice []byte, endpoint string, i int) ([]byte, error) {
	if endpoint == Completions {
		if text := choiceMembers.Value(choice, choiceText); isString(text) {
			return reencoded(text)
		}
		return nil, fmt.Errorf("has no choices[%d].text", i)
	}
	message := choiceMembers.Value(choice, choiceMessage)
	if text := messageMembers.Value(message, 0); isString(text) {
		return reencoded(text)
	}
	if refusal := messageMembers.Value(message, 1); isString(refusal) {
		return nil, fmt.Errorf("is a refusal: %s", jsonline.AppendUnquoted(nil, refusal))
	}
	return nil, fmt.Errorf("has no choices[%d].message.content", i)
}

func isString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

// reencoded returns a JSON string as encode writes it.
func reencoded(value []byte) ([]byte, error) {
	if !bytes.Contains(value, []byte(`\`)) && !bytes.Contains(value, []byte("\u2028")) && !bytes.Contains(value, []byte("\u2029")) {
		return value, nil
	}
	text := jsonline.AppendUnquoted(nil, value)
	const replacement = "\ufffd" // stands for half of a surrogate pair
	if n := bytes.Count(text, []byte(replacement)); n > 0 && n > bytes.Count(value, []byte(replacement))+bytes.Count(bytes.ToLower(value), []byte(`\ufffd`)) {
		return nil, errors.New("has a text that is not valid Unicode")
	}
	return encode(string(text)), nil
}

// batchResult returns the result of a line of a batch file: its custom_id and the response. A
// job that reads batch files completes it.
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
