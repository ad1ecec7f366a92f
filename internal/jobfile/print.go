package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Line is one line of a printed job file.
type Line struct {
	// Text is a setting with its value, such as "batch-size: 256"; see Pair.
	Text string
	// Comment follows the value.
	Comment string
	// Off comments the setting out: it is listed, and has no effect.
	Off bool
	// Group is the heading that the line belongs to; lines of a group are together.
	Group string
}

// widest is the width up to which comments are aligned.
const widest = 60

// Print writes a job file that Parse accepts.
func Print(w io.Writer, header []string, lines []Line) error {
	var b bytes.Buffer
	for _, text := range header {
		b.WriteString("# " + text + "\n")
	}
	width := 0
	for _, line := range lines {
		if n := len([]rune(line.text())); n <= widest {
			width = max(width, n)
		}
	}
	group := ""
	for _, line := range lines {
		if line.Group != group {
			group = line.Group
			b.WriteString("\n# " + group + "\n")
		}
		text := fmt.Sprintf("%-*s", width, line.text())
		if line.Comment != "" {
			text += "  # " + line.Comment
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (l Line) text() string {
	if l.Off {
		return "# " + l.Text
	}
	return l.Text
}

// Pair returns a setting with its value. kind decides what needs no quotes.
func Pair(name string, kind spec.Kind, v Value) string {
	switch {
	case v.JSON != nil:
		return name + ": " + string(v.JSON)
	case v.IsList:
		quoted := make([]string, len(v.Texts))
		for i, text := range v.Texts {
			quoted[i] = Quote(text)
		}
		return name + ": [" + strings.Join(quoted, ", ") + "]"
	}
	text := v.Texts[0]
	if kind == spec.Bool || (kind == spec.Int || kind == spec.Size) && digits.MatchString(text) {
		return name + ": " + text
	}
	return name + ": " + Quote(text)
}

// SpacedJSON returns valid JSON on one line, with the spaces after colons and commas that
// YAML wants.
func SpacedJSON(data []byte) []byte {
	var b bytes.Buffer
	_ = json.Indent(&b, data, "", "") // the caller has checked it
	// Strings contain no line breaks.
	return bytes.ReplaceAll(bytes.ReplaceAll(b.Bytes(), []byte(",\n"), []byte(", ")), []byte("\n"), nil)
}

// Quote returns a text as a YAML string, with quotes where they are needed or likely to
// avoid a surprise.
func Quote(text string) string {
	if plain().MatchString(text) && !slices.Contains(special, strings.ToLower(text)) {
		return text
	}
	return string(quoteJSON(text))
}

var (
	plain = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9/._=-]*|\.{1,2}/[A-Za-z0-9/._=-]*|[0-9]+[A-Za-z][A-Za-z0-9]*)$`)
	})
	digits  = regexp.MustCompile(`^-?[0-9]+$`)
	special = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)
