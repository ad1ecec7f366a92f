package fault

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBounded: overlong text is cut once, with a note, and stays valid UTF-8.
func TestBounded(t *testing.T) {
	short := New(Batch, "no").WithDetail("trace")
	if got := short.Bounded(); got != short {
		t.Errorf("%+v", got)
	}
	long := New(Batch, "why: %s", strings.Repeat("é", 1<<20)).WithDetail(strings.Repeat("ü", 1<<20) + "\nValueError").InStep("a").Signed(Text)
	got := long.Bounded()
	if !strings.HasPrefix(got.Message, "why: é") || !strings.HasSuffix(got.Message, "… (2093061 bytes cut)") {
		t.Errorf("%.20q … %q", got.Message, got.Message[len(got.Message)-40:])
	}
	if !strings.HasPrefix(got.Detail, "(2064395 bytes cut) …") || !strings.HasSuffix(got.Detail, "ü\nValueError") {
		t.Errorf("%.40q", got.Detail)
	}
	if !utf8.ValidString(got.Message+got.Detail) || len(got.Message) > MaxMessage+64 || len(got.Detail) > MaxDetail+64 {
		t.Errorf("%d and %d bytes", len(got.Message), len(got.Detail))
	}
	if got.Kind != Batch || got.Step != "a" || got.Sign != Text || len(long.Message) < 1<<20 {
		t.Errorf("%s %s %s", got.Kind, got.Step, got.Sign)
	}
}
