package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// fill returns the text for a record. member returns the JSON of a member.
func (t template) fill(member func(string) ([]byte, bool)) (string, error) {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.text)
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
				return "", fmt.Errorf("member %q is not an object", strings.Join(p.path[:i+1], "."))
			}
			value, ok = object[name]
		}
		if !ok {
			return "", fmt.Errorf("the record has no member %q", strings.Join(p.path, "."))
		}
		text, err := asText(value)
		if err != nil {
			return "", fmt.Errorf("member %q: %w", strings.Join(p.path, "."), err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// asText returns a string's text, and the JSON of anything else.
func asText(value []byte) (string, error) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || value[0] != '"' {
		if bytes.Equal(value, []byte("null")) {
			return "", errors.New("it is null")
		}
		return string(value), nil
	}
	var text string
	err := json.Unmarshal(value, &text)
	return text, err
}
