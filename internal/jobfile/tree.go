package jobfile

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// MaxBytes is the size of the largest job file.
	MaxBytes = 64 << 10
	// maxDepth is how deep values may be nested. The library needs time and memory that
	// grow with its square.
	maxDepth = 50
	// maxIndent is the column in which a line may start at most.
	maxIndent = 8 * maxDepth
)

// tree parses YAML. It returns nil after a mistake.
func (p *parser) tree(data []byte) ast.Node {
	if len(data) > MaxBytes {
		p.blame(nil, "the file is larger than %d KiB", MaxBytes>>10)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if !p.checkBytes(data) {
		return nil
	}
	tokens := lexer.Tokenize(string(data))
	before := len(p.mistakes)
	p.checkTokens(tokens)
	if len(p.mistakes) > before {
		return nil
	}
	file, err := yamlparser.Parse(tokens, 0, yamlparser.AllowDuplicateMapKey())
	if err != nil {
		p.blameSyntax(data, err)
		return nil
	}
	return p.document(file)
}

// checkBytes refuses what is not text, where the position would otherwise be lost.
func (p *parser) checkBytes(data []byte) bool {
	line, column := 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			p.mistakes = append(p.mistakes, Mistake{File: p.file.Name, Line: line, Column: column, Text: "the file is not text: it contains a byte that is not UTF-8, or a control character"})
			return false
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return true
}

// refused are tokens of YAML that a job file does not need.
var refused = map[token.Type]string{
	token.AnchorType:    "anchors (&) are not supported: repeat the value",
	token.AliasType:     "aliases (*) are not supported: repeat the value, or quote a text that begins with *",
	token.TagType:       "tags (!) are not supported: quote a text that begins with !",
	token.MergeKeyType:  "merge keys (<<) are not supported: repeat the values",
	token.DirectiveType: "directives (%%) are not supported",
}

// checkTokens refuses what a job file does not need, and nesting that would exhaust the
// library.
func (p *parser) checkTokens(tokens token.Tokens) {
	depth, entries, line := 0, 0, 0
	for _, t := range tokens {
		if text, ok := refused[t.Type]; ok {
			p.blame(t, "%s", strings.ReplaceAll(text, "%%", "%"))
		}
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
			if t.Position.Column > maxIndent && t.Type != token.CommentType {
				entries = maxDepth
			}
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if depth > maxDepth || entries >= maxDepth {
			p.blame(t, "values are nested too deeply")
			return
		}
	}
}

// blameSyntax reports what the library says about a file that is not YAML.
func (p *parser) blameSyntax(data []byte, err error) {
	if p.blameTabs(data) {
		return
	}
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		p.blame(nil, "not valid YAML: %s", firstLine(err.Error()))
		return
	}
	at := syntax.GetToken()
	if lines := strings.Split(string(data), "\n"); at != nil && at.Position.Line <= len(lines) && dash.MatchString(lines[at.Position.Line-1]) {
		p.blame(at, `quote the dash: "-"`)
		return
	}
	p.blame(at, "not valid YAML: %s", firstLine(syntax.GetMessage()))
}

// dash is a line with a dash as the value, which YAML takes for the beginning of a list.
var dash = regexp.MustCompile(`:\s+-\s*(#.*)?$`)

// blameTabs reports lines that a tab indents: the library's message does not say so.
func (p *parser) blameTabs(data []byte) bool {
	found := false
	for i, line := range strings.Split(string(data), "\n") {
		text := strings.TrimLeft(line, " \t")
		if at := strings.IndexByte(line[:len(line)-len(text)], '\t'); at >= 0 && text != "" {
			p.mistakes = append(p.mistakes, Mistake{File: p.file.Name, Line: i + 1, Column: at + 1, Text: "a tab indents this line; YAML allows only spaces"})
			found = true
		}
	}
	return found
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// document returns the only document of a file.
func (p *parser) document(file *ast.File) ast.Node {
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			p.blame(doc.Body.GetToken(), "a job file has one document; this is a second one")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		p.blame(nil, "the file contains no settings")
	}
	return body
}
