package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// value reads the value of a setting.
func (p *parser) value(s Setting, key *token.Token, node ast.Node) (Value, bool) {
	if null, ok := node.(*ast.NullNode); ok && !slices.Contains(s.Words, null.GetToken().Value) {
		p.blame(key, "%s has no value", s.Name)
		return Value{}, false
	}
	switch s.Kind {
	case Steps:
		return p.steps(s, node)
	case Document:
		return p.config(s, node)
	case List:
		return p.list(s, node)
	}
	text, ok := p.scalar(s, node)
	return Value{Texts: []string{text}}, ok
}

// list reads a list of texts, or one.
func (p *parser) list(s Setting, node ast.Node) (Value, bool) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		text, ok := p.scalar(s, node)
		return Value{Texts: []string{text}}, ok
	}
	v := Value{IsList: true, Texts: make([]string, 0, len(sequence.Values))}
	good := true
	for _, element := range sequence.Values {
		text, ok := p.scalar(s, element)
		v.Texts, good = append(v.Texts, text), good && ok
	}
	return v, good
}

// scalar reads one text, number or truth value as the text that the setting takes.
func (p *parser) scalar(s Setting, node ast.Node) (string, bool) {
	at := node.GetToken()
	text, problem := s.text(node)
	if problem == "" && s.Check != nil {
		if err := s.Check(text); err != nil {
			problem = err.Error()
		}
	}
	if problem == "" {
		return text, true
	}
	p.blame(at, "%s: %s", s.Name, problem)
	return "", false
}

// text returns the text of a value, or what is wrong with it.
func (s Setting) text(node ast.Node) (text, problem string) {
	if at := node.GetToken(); at != nil && slices.Contains(s.Words, at.Value) {
		return at.Value, ""
	}
	wrong := func(wanted string) (string, string) {
		if len(s.Words) > 0 && !s.Closed {
			wanted += " or " + strings.Join(s.Words, " or ")
		}
		return "", fmt.Sprintf("must be %s, not %s", wanted, describe(node))
	}
	if s.Closed {
		text, problem := wrong("one of " + strings.Join(s.Words, ", "))
		return text, problem + meant(node.GetToken().Value, s.Words)
	}
	switch s.Kind {
	case Bool:
		if b, ok := node.(*ast.BoolNode); ok {
			return fmt.Sprint(b.Value), ""
		}
		return wrong("true or false")
	case Int:
		if n, ok := node.(*ast.IntegerNode); ok && n.Value != nil {
			return fmt.Sprint(n.Value), ""
		}
		return wrong("a whole number")
	case Size:
		if n, ok := node.(*ast.IntegerNode); ok && n.Value != nil {
			return fmt.Sprint(n.Value), ""
		}
		if text, ok := plainText(node); ok {
			return text, ""
		}
		return wrong("a size such as 64K, 32MiB or 1G")
	case Duration:
		if n, ok := node.(*ast.IntegerNode); ok && fmt.Sprint(n.Value) == "0" {
			return "0s", ""
		}
		if text, ok := plainText(node); ok {
			return text, ""
		}
		return wrong("a time with its unit, such as 30s or 5m")
	}
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return node.GetToken().Value, ""
	}
	if text, ok := plainText(node); ok {
		return text, ""
	}
	if _, ok := node.(*ast.BoolNode); ok {
		return "", fmt.Sprintf("must be text; quote it: %q", node.GetToken().Value)
	}
	return wrong("text")
}

// plainText returns the text of a string.
func plainText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	}
	return "", false
}
