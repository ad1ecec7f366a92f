package fault_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

func TestShapeKeepsWhatMessagesOfOneCauseShare(t *testing.T) {
	for message, want := range map[string]string{
		"could not convert string to float: 'n/a'": "could not convert string to float: '…'",
		"record 4711 has 3 tokens":                 "record # has # tokens",
		"HTTP 404 from 'a' after 3 attempts":       "HTTP 404 from '…' after # attempts",
		"can't open 'a b' and can't close":         "can't open '…' and can't close",
		"bad id 7f3a-11ee":                         "bad id #-#",
		"unclosed 'quote":                          "unclosed 'quote",
		"first\nsecond":                            "first",
		"":                                         "",
	} {
		if got := fault.Shape(message); got != want {
			t.Errorf("Shape(%q) = %q, want %q", message, got, want)
		}
	}
	if got := fault.Shape(strings.Repeat("ab ", 1<<20)); len(got) > 200 {
		t.Errorf("a shape of %d bytes", len(got))
	}
}
