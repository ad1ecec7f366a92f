package openai

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/plugins"
)

// request is what to send for a record.
type request struct {
	url *url.URL
	body
	id json.RawMessage // the custom_id of a line of a batch file
}

// request makes the request for a record. An error rejects the record.
func (s *settings) request(record plugins.Record) (request, error) {
	if s.Prompt == "" {
		return s.batchLine(record)
	}
	body, err := s.form.fill(record)
	return request{url: s.endpoint, body: body}, err
}

// imageURLs reads a member that holds one URL or a list of them.
func imageURLs(record plugins.Record, name string) ([]string, error) {
	value, ok := record.Member(name)
	if !ok {
		return nil, fmt.Errorf("the record has no member %q", name)
	}
	var one string
	var list []string
	if json.Unmarshal(value, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(value, &list) != nil {
		return nil, fmt.Errorf("member %q is not a URL or a list of URLs", name)
	}
	for _, text := range list {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "data" {
			return nil, fmt.Errorf("member %q is not an http, https or data URL", name)
		}
	}
	return list, nil
}

// batchLine reads a line of a batch file.
func (s *settings) batchLine(record plugins.Record) (request, error) {
	var line struct {
		ID     json.RawMessage `json:"custom_id"`
		Method string          `json:"method"`
		URL    string          `json:"url"`
		Body   json.RawMessage `json:"body"`
	}
	if err := record.Decode(&line); err != nil {
		return request{}, fmt.Errorf("not a line of a batch file: %w", err)
	}
	var id string
	switch {
	case len(line.ID) > 0 && json.Unmarshal(line.ID, &id) != nil:
		return request{}, fmt.Errorf("custom_id %s is not a text", line.ID)
	case id == "":
		return request{}, fmt.Errorf("the record has no custom_id: it is not a line of a batch file")
	case line.Method != "" && line.Method != "POST":
		return request{}, fmt.Errorf("method %q: only POST is supported", line.Method)
	case len(line.Body) == 0 || line.Body[0] != '{':
		return request{}, fmt.Errorf("the record has no body: it is not a line of a batch file")
	}
	var asks struct {
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(line.Body, &asks); err == nil && asks.Stream {
		return request{}, fmt.Errorf("the body asks for a stream; set stream to false")
	}
	address, err := s.address(line.URL)
	return request{url: address, body: body{text: line.Body}, id: line.ID}, err
}

// besides are the urls of requests in files for vllm run-batch that do not begin with /v1.
var besides = []string{"/score", "/rerank", "/v2/rerank"}

// address returns where to send a request of a batch file, whose url is a path such as
// /v1/chat/completions. It never leaves the server, nor what is below the base URL or,
// for a few urls, next to it.
func (s *settings) address(text string) (*url.URL, error) {
	if slices.Contains(besides, text) {
		return url.Parse(strings.TrimSuffix(s.base.String(), "/v1") + text)
	}
	below, ok := strings.CutPrefix(text, "/v1/")
	if !ok || below != path.Clean(below) || strings.ContainsAny(below, "?#%\\: ") || strings.HasPrefix(below, ".") {
		return nil, fmt.Errorf("url %q: it must be a path such as /v1/chat/completions", text)
	}
	return s.below("/" + below)
}
