package proc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func TestTail(t *testing.T) {
	numbers := ""
	for i := range tailLines + 5 {
		numbers += fmt.Sprintln(i)
	}
	long := strings.Repeat("x", 5000)
	tests := []struct {
		name   string
		writes []string
		want   string
	}{
		{"nothing", nil, ""},
		{"one line", []string{"a\n"}, "a"},
		{"unfinished", []string{"a\nb"}, "a\nb"},
		{"in pieces", []string{"a", "b\nc", "\n", "d"}, "ab\nc\nd"},
		{"empty lines", []string{"\n\na\n\n\nb\n \n"}, "a\nb"},
		{"the last lines", []string{numbers}, strings.TrimSpace(numbers[strings.Index(numbers, "\n5\n")+1:])},
		{"long line", []string{long + "\nend\n"}, long[:tailLineBytes] + "\nend"},
		{"long line in pieces", []string{long, long, "\nend"}, long[:tailLineBytes] + "\nend"},
		{"carriage returns", []string{"a\r\nb\r\n"}, "a\nb"},
		{"progress bar", []string{"10%\r20%", "\r30%\rdone\n", "40%\r50%\r"}, "done\n50%"},
		{"long progress bar", []string{strings.Repeat("working…\r", 1000), "failed\n"}, "failed"},
		{"not UTF-8", []string{"a\xff\xfeb\n\xc3"}, "a\uFFFDb\n\uFFFD"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var tail Tail
			for _, text := range test.writes {
				if n, err := tail.Write([]byte(text)); n != len(text) || err != nil {
					t.Errorf("wrote %d of %d: %v", n, len(text), err)
				}
			}
			got := tail.String()
			if got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
			if tail.String() != got {
				t.Error("asking changed it")
			}
		})
	}
}

// Lines are cut between characters.
func TestTailCutsBetweenCharacters(t *testing.T) {
	var tail Tail
	_, _ = tail.Write([]byte("x" + strings.Repeat("ü", 2000) + "\n" + "x" + strings.Repeat("ü", 2000)))
	if got := tail.String(); !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

func TestTailConcurrently(t *testing.T) {
	var tail Tail
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 200 {
				fmt.Fprintln(&tail, i)
				_ = tail.String()
			}
		})
	}
	group.Wait()
}
