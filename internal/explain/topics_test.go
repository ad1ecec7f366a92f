package explain

import (
	"strings"
	"testing"
)

func TestTopic(t *testing.T) {
	for name, want := range map[string]string{
		"3": "Exit status 3", "exit status 3": "Exit status 3", "OOM ": "Kind: oom", "no-device": "Kind: no-device",
	} {
		if title, text, ok := Topic(name); !ok || title != want || text == "" || strings.Contains(text, "](") {
			t.Errorf("%s: %q, %q, want %s", name, title, text, want)
		}
	}
	for _, name := range []string{"", "0", "hello"} {
		if title, _, ok := Topic(name); ok {
			t.Errorf("%q: %s", name, title)
		}
	}
}
