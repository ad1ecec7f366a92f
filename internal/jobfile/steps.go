package jobfile

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// stepSettings are the keys of a step.
var stepSettings = []Setting{
	{Name: StepKernel, Kind: Text},
	{Name: StepConfig, Kind: Document},
}

// steps reads the list of steps. A step without a configuration may be just its kernel.
func (p *parser) steps(s Setting, node ast.Node) (Value, bool) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok || len(sequence.Values) == 0 {
		p.blame(node.GetToken(), "%s must be a list of kernels, not %s", s.Name, describe(node))
		return Value{}, false
	}
	v := Value{}
	before := len(p.mistakes)
	for _, element := range sequence.Values {
		v.Steps = append(v.Steps, p.step(s, element))
	}
	return v, len(p.mistakes) == before
}

func (p *parser) step(s Setting, node ast.Node) (step Step) {
	at := node.GetToken()
	if pairs, ok := node.(ast.MapNode); ok {
		in := parser{file: p.file, settings: stepSettings}
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
