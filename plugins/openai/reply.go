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
}

// usageMember finds what a server says that an answer has used.
var usageMember = jsonline.Want("usage")

// usage returns the tokens that the answer has used, nil if the server does not say.
func (r reply) usage() map[string]int64 {
	var info jsonline.Info
	if usageMember.Scan(r.body, &info) != nil || !info.Object || !info.Spans[0].Present() {
		return nil
	}
	var u struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
		Input      int64 `json:"input_tokens"` // of /v1/responses
		Output     int64 `json:"output_tokens"`
	}
	if json.Unmarshal(r.body[info.Spans[0].ValueStart:info.Spans[0].ValueEnd], &u) != nil {
		return nil
	}
	counts := map[string]int64{figures.PromptTokens: max(u.Prompt, u.Input), figures.CompletionTokens: max(u.Completion, u.Output)}
	counts[figures.TotalTokens] = max(u.Total, counts[figures.PromptTokens]+counts[figures.CompletionTokens])
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n <= 0 })
	return counts
}

// answer turns a good answer into the result of the record.
func (s *settings) answer(record plugins.Record, sent request, got reply) plugins.Answer {
	if sent.id != nil {
		return plugins.Replaced(batchResult(sent.id, got))
	}
	value, err := s.extract(got.body)
	if err != nil {
		return plugins.Rejected("the server's answer %s", err)
	}
	line, err := record.With(plugins.NewMember{Name: s.Output, Value: value})
	if err != nil {
		return plugins.Rejected("%s", err)
	}
	return plugins.Replaced(line)
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
		return nil, fmt.Errorf("is not what %s gives: %w", s.Endpoint, err)
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
