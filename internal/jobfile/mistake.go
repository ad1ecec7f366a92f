package jobfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is something in a job file that cannot be meant.
type Mistake struct {
	// File, Line and Column say where it is; Line is 0 for what is not in a file.
	File         string
	Line, Column int
	Text         string
}

func (m Mistake) String() string {
	if m.Line == 0 {
		return m.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.Text)
}

// Mistakes are all mistakes of a file. As an error, they are one line each.
type Mistakes []Mistake

func (m Mistakes) Error() string {
	if len(m) == 1 {
		return m[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d mistakes:", len(m))
	for _, one := range m {
		b.WriteString("\n  " + one.String())
	}
	return b.String()
}

// sort orders the mistakes by their place.
func (m Mistakes) sort() {
	slices.SortStableFunc(m, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
