package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/gpurun/gpurun/orchestrator/spec"
)

// config reads a document: a text, or a mapping or list as JSON.
func (p *parser) config(s spec.Setting, node ast.Node) (Value, bool) {
	switch node.(type) {
	case ast.MapNode, *ast.SequenceNode:
		before := len(p.mistakes)
		encoded := p.appendJSON(nil, s, node)
		return Value{JSON: encoded}, len(p.mistakes) == before
	}
	if text, ok := plainText(node); ok {
		return Value{Texts: []string{text}}, true
	}
	p.refuse(s, node)
	return Value{}, false
}

// appendJSON appends a value as JSON. Members keep their order and numbers their digits.
func (p *parser) appendJSON(to []byte, s spec.Setting, node ast.Node) []byte {
	switch n := node.(type) {
	case ast.MapNode:
		to = append(to, '{')
		empty := true
		p.each(n, func(key *token.Token, value ast.Node) {
			if !empty {
				to = append(to, ", "...)
			}
			empty = false
			to = append(append(to, quoteJSON(key.Value)...), ": "...)
			to = p.appendJSON(to, s, value)
		})
		return append(to, '}')
	case *ast.SequenceNode:
		to = append(to, '[')
		for i, element := range n.Values {
			if i > 0 {
				to = append(to, ", "...)
			}
			to = p.appendJSON(to, s, element)
		}
		return append(to, ']')
	case *ast.NullNode:
		return append(to, "null"...)
	case *ast.BoolNode:
		return strconv.AppendBool(to, n.Value)
	case *ast.IntegerNode:
		if digits := n.GetToken().Value; isNumber(digits) || n.Value == nil {
			return append(to, digits...)
		}
		return fmt.Append(to, n.Value) // 0x1f, 1_000
	case *ast.FloatNode:
		if digits := n.GetToken().Value; isNumber(digits) {
			return append(to, digits...)
		}
		return strconv.AppendFloat(to, n.Value, 'g', -1, 64)
	case *ast.LiteralNode:
		return append(to, quoteJSON(n.Value.Value)...)
	case *ast.StringNode:
		if n.GetToken().Type == token.StringType && isNumber(n.Value) {
			return append(to, n.Value...) // the library reads a number of many digits as text
		}
		return append(to, quoteJSON(n.Value)...)
	}
	p.blame(node.GetToken(), "%s: JSON has no %s", s.Name, describe(node))
	return append(to, "null"...)
}

// isNumber reports whether a text is a number in JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// quoteJSON encodes a text as a JSON string, which is a YAML string, too.
func quoteJSON(text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
