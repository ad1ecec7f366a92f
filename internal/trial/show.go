package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/gpurun/gpurun/internal/jsonline"
)

// sideBySide shows records next to the lines that a kernel made of them.
type sideBySide struct {
	out   io.Writer
	width int
	color bool
	shown int // records
}

// plainWidth is the width of the table where there is no terminal.
const plainWidth = 100

// change is how a member of the output differs from the input.
type change struct {
	mark, color string
}

var (
	same    = change{" ", "2"}  // dim
	added   = change{"+", "32"} // green
	changed = change{"~", "33"} // yellow
	removed = change{"-", "31"} // red
)

// row is one member of a record and of a line that it became.
type row struct {
	name          string
	input, output []byte // nil if it is absent
}

func (r row) change() change {
	switch {
	case r.input == nil:
		return added
	case r.output == nil:
		return removed
	case bytes.Equal(r.input, r.output):
		return same
	}
	return changed
}

// computed shows a record and the lines that it became.
func (s *sideBySide) computed(record sampleRecord, lines [][]byte) {
	s.head(record)
	if len(lines) == 0 {
		s.rows(rowsOf(record.line, nil))
		fmt.Fprintln(s.out, s.paint("33", "  dropped"))
	}
	for i, line := range lines {
		if len(lines) > 1 {
			fmt.Fprintf(s.out, "  line %d of %d\n", i+1, len(lines))
		}
		s.rows(rowsOf(record.line, line))
	}
}

// failed shows a record and why it failed.
func (s *sideBySide) failed(record sampleRecord, message string) {
	s.head(record)
	s.rows(rowsOf(record.line, record.line))
	fmt.Fprintln(s.out, s.paint("31", "  failed: "+printable(message)))
}

func (s *sideBySide) head(record sampleRecord) {
	if s.shown++; s.shown > 1 {
		fmt.Fprintln(s.out)
	}
	fmt.Fprintln(s.out, s.paint("1", record.place()))
}

// rowsOf pairs the members of a record with the members of a line, in the order of the line.
// Values that are not objects have one row without a name.
func rowsOf(input, output []byte) []row {
	before, isObject := membersOf(input)
	after, alsoObject := membersOf(output)
	if !isObject || output != nil && !alsoObject {
		return []row{{"", input, output}}
	}
	values := make(map[string][]byte)
	for _, member := range before {
		values[member.Name] = member.Value
	}
	var rows []row
	for _, member := range after {
		rows = append(rows, row{member.Name, values[member.Name], member.Value})
		delete(values, member.Name)
	}
	for _, member := range before {
		if _, left := values[member.Name]; left {
			rows = append(rows, row{member.Name, member.Value, nil})
		}
	}
	return rows
}

func membersOf(line []byte) (members []jsonline.Member, isObject bool) {
	var info jsonline.Info
	if err := jsonline.Want("").Scan(line, &info); err != nil || !info.Object {
		return nil, false
	}
	jsonline.Members(line, func(_ []byte, name string, value []byte) bool {
		members = append(members, jsonline.Member{Name: name, Value: value})
		return true
	})
	return members, true
}

// maxName is the width of the longest member name that is shown in full.
const maxName = 24

func (s *sideBySide) rows(rows []row) {
	name := 0
	for _, r := range rows {
		name = max(name, min(maxName, runewidth.StringWidth(printable(r.name))))
	}
	half := max(12, (s.width-name-6)/2)
	for _, r := range rows {
		c := r.change()
		text := fmt.Sprintf("%s %s  %s  %s", c.mark, padded(r.name, name), padded(shown(r.input, half), half), shown(r.output, half))
		fmt.Fprintln(s.out, s.paint(c.color, strings.TrimRight(text, " ")))
	}
}

// paint colors text if the terminal can show colors.
func (s *sideBySide) paint(color, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// padded returns text cut or filled to a width in terminal columns.
func padded(text string, width int) string {
	return runewidth.FillRight(runewidth.Truncate(printable(text), width, "…"), width)
}

// shown returns a value within a width. An array that is cut ends with its length.
func shown(value []byte, width int) string {
	text := printable(string(value))
	if runewidth.StringWidth(text) <= width {
		return text
	}
	end := "…"
	var elements []json.RawMessage
	if value[0] == '[' && json.Unmarshal(value, &elements) == nil {
		end = "… (" + strconv.Itoa(len(elements)) + ")"
	}
	return runewidth.Truncate(text, width, end)
}

// printable replaces characters that would control the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, text)
}
