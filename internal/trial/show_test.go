package trial

import (
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
)

func show(width int, do func(*sideBySide)) string {
	var b strings.Builder
	do(&sideBySide{out: &b, width: width})
	return b.String()
}

func TestSideBySide(t *testing.T) {
	record := sampleRecord{number: 7, line: []byte(`{"id":1,"text":"a","old":[1,2]}`)}
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"changes": {[]string{`{"id":1,"text":"b","new":true}`}, `
line 7
  id    1                 1
~ text  "a"               "b"
+ new                     true
- old   [1,2]
`},
		"dropped": {nil, `
line 7
- id    1
- text  "a"
- old   [1,2]
  dropped
`},
		"two lines": {[]string{`{"id":1}`, `{}`}, `
line 7
  line 1 of 2
  id    1                 1
- text  "a"
- old   [1,2]
  line 2 of 2
- id    1
- text  "a"
- old   [1,2]
`},
		"no object": {[]string{`[1]`}, `
line 7
~   {"id":1,"text":"a…  [1]
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := show(42, func(s *sideBySide) {
				var lines [][]byte
				for _, line := range test.lines {
					lines = append(lines, []byte(line))
				}
				s.computed(record, lines)
			})
			if want := strings.TrimPrefix(test.want, "\n"); got != want {
				t.Errorf("got\n%s\nnot\n%s", got, want)
			}
		})
	}
	got := show(42, func(s *sideBySide) { s.failed(record, "ValueError: \x1b[31mno") })
	if !strings.HasSuffix(got, "  failed: ValueError: ·[31mno\n") {
		t.Error(got)
	}
}

// No line is wider than the terminal, whatever the values are.
func TestSideBySideWidth(t *testing.T) {
	long := strings.Repeat("名前", 40)
	line := []byte(`{"` + long + `":"` + long + `","v":[` + strings.Repeat("1,", 99) + `1],"` + "\u009b" + `":1}`)
	for _, width := range []int{60, 80, 133} {
		out := show(width, func(s *sideBySide) {
			s.computed(sampleRecord{number: 1, line: line}, [][]byte{line, []byte(`{"x":"` + long + `"}`)})
		})
		for _, row := range strings.Split(out, "\n") {
			if runewidth.StringWidth(row) > width {
				t.Errorf("%d columns in a terminal of %d: %s", runewidth.StringWidth(row), width, row)
			}
		}
		if !strings.Contains(out, "… (100)") {
			t.Errorf("no length:\n%s", out)
		}
	}
}
