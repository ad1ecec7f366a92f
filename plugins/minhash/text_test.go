package minhash

import (
	"strings"
	"testing"
	"unicode"
)

// pythonSpace is what Python's str.split treats as white space.
func pythonSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func joined(text string) string { return strings.Join(strings.FieldsFunc(text, pythonSpace), " ") }

func TestEverySpace(t *testing.T) {
	for r := rune(1); r <= unicode.MaxRune; r++ {
		text := "a" + string(r) + "b"
		got := []byte(text)
		if got = got[:joinWords(got)]; string(got) != joined(text) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, text := range []string{"", " ", "a", "a b", "a  b", "eight888 eight888  x", "é ü\u2003x ", "1234567 9", "1234567  9"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		want := joined(text)
		if spaced([]byte(text)) && text != want {
			t.Errorf("%q is not spaced", text)
		}
		got := []byte(text)
		if got = got[:joinWords(got)]; string(got) != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if ascii := want == text && strings.IndexFunc(text, func(r rune) bool { return r > 0x7f || r < ' ' }) < 0; ascii && !spaced(got) {
			t.Errorf("%q was taken for not spaced", text)
		}
	})
}
