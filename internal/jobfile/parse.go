package jobfile

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Parse reads a job file. check returns why a setting does not take a value. If the file has
// mistakes, the error is Mistakes with all of them, except that a file that is not YAML has
// only the first.
func Parse(name string, data []byte, settings []spec.Setting, check func(s spec.Setting, text string) error) (*File, error) {
	p := &parser{file: &File{Name: name, Values: make(map[string]Value)}, settings: settings, check: check}
	if root := p.tree(data); root != nil {
		p.top(root)
	}
	if len(p.mistakes) > 0 {
		p.mistakes.sort()
		return nil, p.mistakes
	}
	return p.file, nil
}

// parser is a file being read.
type parser struct {
	file     *File
	settings []spec.Setting
	check    func(s spec.Setting, text string) error
	mistakes Mistakes
}

// blame records a mistake at a token.
func (p *parser) blame(at *token.Token, format string, args ...any) {
	m := Mistake{File: p.file.Name, Line: 1, Column: 1, Text: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		m.Line, m.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	p.mistakes = append(p.mistakes, m)
}

// top reads the mapping of settings that the file consists of.
func (p *parser) top(root ast.Node) {
	pairs, ok := root.(ast.MapNode)
	if !ok {
		p.blame(root.GetToken(), "a job file is a mapping of settings to values, such as batch-size: 256, not %s", describe(root))
		return
	}
	keys := make(map[string]*token.Token)
	p.each(pairs, func(key *token.Token, value ast.Node) {
		s, ok := p.setting(key, value)
		if !ok {
			return
		}
		keys[s.Name] = key
		if v, ok := p.value(s, key, value); ok {
			v.Line = key.Position.Line
			p.file.Values[s.Name] = v
		}
	})
	for _, s := range p.settings {
		for _, other := range s.Excludes {
			if keys[s.Name] != nil && keys[other] != nil {
				p.blame(keys[other], "%s cannot be combined with %s", other, s.Name)
			}
		}
	}
}

// each calls do for the pairs of a mapping, and refuses keys that appear twice.
func (p *parser) each(pairs ast.MapNode, do func(key *token.Token, value ast.Node)) {
	first := make(map[string]int)
	for i := pairs.MapRange(); i.Next(); {
		key := i.Key().GetToken()
		if _, isValue := i.Key().(*ast.MappingKeyNode); isValue || key == nil {
			p.blame(key, "a key must be a name")
			continue
		}
		if line := first[key.Value]; line > 0 {
			p.blame(key, "%s is set twice, first in line %d", key.Value, line)
			continue
		}
		first[key.Value] = key.Position.Line
		do(key, i.Value())
	}
}

// setting finds the setting that a key names.
func (p *parser) setting(key *token.Token, value ast.Node) (found spec.Setting, ok bool) {
	name := key.Value
	var names []string
	isGroup := false
	for _, s := range p.settings {
		switch {
		case s.Place == spec.NotInFile && s.Name == name && s.Instead != "":
			p.blame(key, "unknown setting %q; a job file has %s instead", name, s.Instead)
			return s, false
		case s.Place == spec.NotInFile:
			continue
		case s.Name == name:
			return s, true
		}
		names = append(names, s.Name)
		isGroup = isGroup || strings.EqualFold(s.Group, name)
	}
	if _, nested := value.(ast.MapNode); nested && isGroup {
		p.blame(key, "%s is a heading, not a setting; write its settings without one", name)
		return found, false
	}
	p.blame(key, "unknown setting %q%s", name, meant(name, names))
	return found, false
}

// meant suggests the name that a misspelled one stands for.
func meant(name string, names []string) string {
	bare := func(name string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
	}
	for _, candidate := range names {
		if bare(candidate) == bare(name) {
			return "; did you mean " + candidate + "?"
		}
	}
	return nearest.Hint(strings.ToLower(name), names, 3, "")
}

// describe names the kind of a node for messages.
func describe(node ast.Node) string {
	switch n := node.(type) {
	case *ast.NullNode:
		return "nothing"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("the text %q", shorten(n.Value))
	case *ast.LiteralNode:
		return "a block of text"
	}
	if at := node.GetToken(); at != nil {
		return shorten(at.Value)
	}
	return "this"
}

// shorten cuts a text that is too long for a message.
func shorten(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
