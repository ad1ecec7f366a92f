package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// template is a text with placeholders for members of a record.
type template []piece

// piece is a text or, if path is not empty, a placeholder.
type piece struct {
	text string
	path []string
}

// parseTemplate parses {member}, {member.member}, {{ and }}.
func parseTemplate(text string) (template, error) {
	var t template
	var plain strings.Builder
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			plain.WriteString(rest)
			break
		}
		plain.WriteString(rest[:i])
		brace := rest[i]
		rest = rest[i+1:]
		if rest != "" && rest[0] == brace {
			plain.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if brace == '}' || !closed {
			return nil, fmt.Errorf("unpaired %q at byte %d: write %s%s for the character itself", brace, len(text)-len(rest)-1, string(brace), string(brace))
		}
		path := strings.Split(name, ".")
		for _, member := range path {
			if member == "" || strings.ContainsAny(member, "{ \t\n\"") {
				return nil, fmt.Errorf("{%s} is not the name of a member", name)
			}
		}
		t = append(t, piece{text: plain.String()}, piece{path: path})
		plain.Reset()
		rest = after
	}
	return append(t, piece{text: plain.String()}), nil
}

// members returns the members of a record that the template reads.
func (t template) members() []string {
	var names []string
	for _, p := range t {
		if len(p.path) > 0 {
			names = append(names, p.path[0])
		}
	}
	return names
}

// appendJSON appends the text for a record as a JSON string without its quotes.
func (t template) appendJSON(dst []byte, member func(string) ([]byte, bool)) ([]byte, error) {
	for _, p := range t {
		dst = appendInside(dst, []byte(p.text))
		if len(p.path) == 0 {
			continue
		}
		value, ok := member(p.path[0])
		for i, name := range p.path[1:] {
			if !ok {
				break
			}
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				return nil, fmt.Errorf("member %q is not an object", strings.Join(p.path[:i+1], "."))
			}
			value, ok = object[name]
		}
		if !ok {
			return nil, fmt.Errorf("the record has no member %q", strings.Join(p.path, "."))
		}
		var err error
		if dst, err = appendText(dst, bytes.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("member %q: %w", strings.Join(p.path, "."), err)
		}
	}
	return dst, nil
}

// appendText appends a string's text, or the JSON of anything else, as part of a JSON string.
func appendText(dst, value []byte) ([]byte, error) {
	switch {
	case bytes.Equal(value, []byte("null")):
		return nil, errors.New("it is null")
	case len(value) == 0 || value[0] != '"':
		return appendInside(dst, value), nil
	case bytes.IndexByte(value, '\\') < 0: // as it is
		return append(dst, value[1:len(value)-1]...), nil
	}
	return appendInside(dst, jsonline.AppendUnquoted(nil, value)), nil
}

// appendInside appends a text as part of a JSON string.
func appendInside(dst, text []byte) []byte {
	start := len(dst)
	dst = jsonline.AppendString(dst, text)
	copy(dst[start:], dst[start+1:len(dst)-1]) // without its quotes
	return dst[:len(dst)-2]
}
