package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/gpurun/gpurun/orchestrator/spec"
)

// value reads the value of a setting.
func (p *parser) value(s spec.Setting, key *token.Token, node ast.Node) (Value, bool) {
	if null, ok := node.(*ast.NullNode); ok && !slices.Contains(s.Words, null.GetToken().Value) {
		p.blame(key, "%s has no value", s.Name)
		return Value{}, false
	}
	switch s.Kind {
	case spec.Steps:
		return p.steps(s, node)
	case spec.Document:
		return p.config(s, node)
	case spec.List, spec.Repeated:
		return p.list(s, node)
	}
	text, ok := p.scalar(s, node)
	return Value{Texts: []string{text}}, ok
}

// list reads a list of texts, or one.
func (p *parser) list(s spec.Setting, node ast.Node) (Value, bool) {
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
func (p *parser) scalar(s spec.Setting, node ast.Node) (string, bool) {
	text, ok := scalarText(s, node)
	if ok || text != "" {
		if err := p.check(s, text); err != nil {
			p.blame(node.GetToken(), "%v", err)
			return "", false
		}
	}
	if !ok {
		p.refuse(s, node)
	}
	return text, ok
}

// refuse reports a value of another kind than the setting takes.
func (p *parser) refuse(s spec.Setting, node ast.Node) {
	hint := ""
	if b, ok := node.(*ast.BoolNode); ok && s.Wanted() == "text" {
		hint = fmt.Sprintf("; quote it: %q", b.GetToken().Value)
	}
	p.blame(node.GetToken(), "%s must be %s, not %s%s", s.Name, s.Wanted(), describe(node), hint)
}

// scalarText returns the text of a value, and whether it is of the right kind.
func scalarText(s spec.Setting, node ast.Node) (text string, ok bool) {
	at := node.GetToken()
	if at != nil && slices.Contains(s.Words, at.Value) {
		return at.Value, true
	}
	number := ""
	if n, ok := node.(*ast.IntegerNode); ok && n.Value != nil {
		number = fmt.Sprint(n.Value)
	}
	text, isText := plainText(node)
	switch n := node.(type) {
	case *ast.BoolNode:
		return fmt.Sprint(n.Value), s.Kind == spec.Bool
	case *ast.IntegerNode, *ast.FloatNode:
		switch {
		case number != "" && (s.Kind == spec.Int || s.Kind == spec.Size):
			return number, true
		case number == "0" && s.Kind == spec.Duration:
			return "0s", true
		}
		return at.Value, !s.OneOf() && !s.Numeric() && s.Kind != spec.Bool
	}
	return text, isText && !s.OneOf() && s.Kind != spec.Int && s.Kind != spec.Bool
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

// stepSettings are the keys of a step.
var stepSettings = []spec.Setting{{Name: StepKernel}, {Name: StepConfig, Kind: spec.Document}}

// steps reads the list of steps. A step without a configuration may be just its kernel.
func (p *parser) steps(s spec.Setting, node ast.Node) (Value, bool) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok || len(sequence.Values) == 0 {
		p.refuse(s, node)
		return Value{}, false
	}
	v := Value{}
	before := len(p.mistakes)
	for _, element := range sequence.Values {
		v.Steps = append(v.Steps, p.step(s, element))
	}
	return v, len(p.mistakes) == before
}

func (p *parser) step(s spec.Setting, node ast.Node) (step Step) {
	at := node.GetToken()
	if pairs, ok := node.(ast.MapNode); ok {
		in := parser{file: p.file, settings: stepSettings, check: spec.Setting.Check}
		in.each(pairs, func(key *token.Token, value ast.Node) {
			if len(step.Kernel) == 0 {
				at = key
			}
			setting, ok := in.setting(key, value)
			if !ok {
				return
			}
			read, ok := in.value(setting, key, value)
			read.Line = key.Position.Line
			switch {
			case !ok:
			case setting.Name == StepKernel:
				step.Kernel, step.Line = read.Texts[0], read.Line
			default:
				step.Config = read
			}
		})
		if p.mistakes = append(p.mistakes, in.mistakes...); len(in.mistakes) > 0 {
			return step
		}
	} else if text, ok := plainText(node); ok {
		step.Kernel, step.Line = text, at.Position.Line
	}
	if strings.TrimSpace(step.Kernel) == "" {
		p.blame(at, "a step of %s needs a kernel: its name, or a mapping with %s and %s", s.Name, StepKernel, StepConfig)
	}
	return step
}
