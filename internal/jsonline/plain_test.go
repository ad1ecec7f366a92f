package jsonline

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// slowPlain is skipPlain, byte by byte.
func slowPlain(s []byte, i int) int {
	for i < len(s) && s[i] >= ' ' && s[i] < 0x80 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// TestSkipPlain puts every byte at every offset of texts of every length around the step
// sizes, with other special bytes after it.
func TestSkipPlain(t *testing.T) {
	if !widePlain {
		t.Log("this processor examines eight bytes at a time")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		text := bytes.Repeat([]byte("x"), n)
		for i := range n {
			text[i] = byte(' ' + random.IntN(0x60))
			if text[i] == '"' || text[i] == '\\' {
				text[i] = '~'
			}
		}
		for from := 0; from <= n; from += 1 + n/5 {
			if got := skipPlain(text, from); got != n {
				t.Fatalf("%q from %d: %d", text, from, got)
			}
			if got := skipPlain(string(text), from); got != n {
				t.Fatalf("string %q from %d: %d", text, from, got)
			}
		}
		for place := range n {
			was := text[place]
			for b := range 256 {
				text[place] = byte(b)
				if got, want := skipPlain(text, 0), slowPlain(text, 0); got != want {
					t.Fatalf("%q: %d, want %d", text, got, want)
				}
			}
			text[place] = was
		}
	}
}

// It never reads past the end: that memory may belong to another batch, or be unmapped.
func FuzzSkipPlain(f *testing.F) {
	f.Add([]byte("plain"), 0)
	f.Add(append(bytes.Repeat([]byte("a"), 70), '"'), 3)
	f.Fuzz(func(t *testing.T, text []byte, from int) {
		if from < 0 || from > len(text) {
			return
		}
		if got, want := skipPlain(text, from), slowPlain(text, from); got != want {
			t.Errorf("%q from %d: %d, want %d", text, from, got, want)
		}
	})
}
