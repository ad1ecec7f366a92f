package jsonline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestScanAccepts(t *testing.T) {
	for _, line := range accepted {
		if !json.Valid([]byte(line)) {
			t.Errorf("wrong table: encoding/json refuses %q", line)
		}
		var info Info
		if err := Want("a").Scan([]byte(line), &info); err != nil {
			t.Errorf("Scan(%q): %v", line, err)
		}
		if !Valid([]byte(line)) {
			t.Errorf("Valid(%q) = false", line)
		}
	}
}

func TestScanRejects(t *testing.T) {
	for _, c := range rejected {
		if json.Valid([]byte(c.line)) && utf8.ValidString(c.line) {
			t.Errorf("wrong table: %q is valid", c.line)
		}
		info := Info{Object: true, Close: 9, Spans: []Span{{1, 2, 3}}}
		err := Want("a").Scan([]byte(c.line), &info)
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("Scan(%q) = %v, want a *SyntaxError", c.line, err)
			continue
		}
		if diff := cmp.Diff(&SyntaxError{Offset: c.offset, Msg: c.msg}, se); diff != "" {
			t.Errorf("Scan(%q): (-want +got)\n%s", c.line, diff)
		}
		if diff := cmp.Diff(Info{Spans: []Span{{}}}, info); diff != "" {
			t.Errorf("Scan(%q) left an Info behind: (-want +got)\n%s", c.line, diff)
		}
		if Valid([]byte(c.line)) {
			t.Errorf("Valid(%q) = true", c.line)
		}
	}
}

// TestScanEveryPlace moves each kind of special byte through every offset of the words in
// which strings are scanned, with every length after it.
func TestScanEveryPlace(t *testing.T) {
	for _, odd := range []string{`"`, `\`, "\x1f", "\x00", "é", "\x80", "\xe2\x82", "漢", "😀", "\x7f", `\n`, `\u00e9`, "!", "#", "]", "["} {
		for before := range 34 {
			for after := range 18 {
				line := []byte(`"` + strings.Repeat("a", before) + odd + strings.Repeat("b", after) + `"`)
				if got, want := Valid(line), json.Valid(line) && utf8.Valid(line); got != want {
					t.Fatalf("Valid(%q) = %v, want %v", line, got, want)
				}
			}
		}
	}
}

func TestScanEveryByte(t *testing.T) {
	for _, form := range []string{"%s", "\"%s\"", "\"\\%s\"", "[1%s]", "[1%s2]", "{%s}", "\"1234567%s1234567\""} {
		for c := range 256 {
			line := fmt.Appendf(nil, form, []byte{byte(c)})
			if got, want := Valid(line), json.Valid(line) && utf8.Valid(line); got != want {
				t.Errorf("Valid(%q) = %v, want %v", line, got, want)
			}
		}
	}
}

func TestScanEveryRune(t *testing.T) {
	// All 3-byte forms over the lead bytes, and the edges of the 4-byte ones.
	check := func(b ...byte) {
		line := append(append([]byte{'"'}, b...), '"')
		if got, want := Valid(line), utf8.Valid(b); got != want {
			t.Fatalf("Valid(%q) = %v, want %v", line, got, want)
		}
	}
	edges := []byte{0x23, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for lead := 0x80; lead < 0x100; lead++ {
		for second := 0x80; second < 0x100; second++ {
			for _, third := range edges {
				check(byte(lead), byte(second), third)
				for _, fourth := range edges {
					check(byte(lead), byte(second), third, fourth)
				}
			}
		}
	}
}

func TestScanDepth(t *testing.T) {
	nest := func(open, inner, close string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inner + strings.Repeat(close, n))
	}
	for _, c := range []struct{ open, inner, close string }{
		{"[", "", "]"}, {`{"a":`, "1", "}"}, {`[{"a":`, "1", "}]"},
	} {
		per := strings.Count(c.open, "[") + strings.Count(c.open, "{")
		if line := nest(c.open, c.inner, c.close, maxDepth/per); !Valid(line) || !json.Valid(line) {
			t.Errorf("%s nested %d deep is refused", c.open, maxDepth)
		}
		line := nest(c.open, c.inner, c.close, maxDepth/per+1)
		var info Info
		err := Want("a").Scan(line, &info)
		want := &SyntaxError{Offset: len(c.open) * (maxDepth / per), Msg: "nested deeper than 10000"}
		if diff := cmp.Diff(error(want), err); diff != "" || json.Valid(line) {
			t.Errorf("%s nested too deep: (-want +got)\n%s", c.open, diff)
		}
	}
}

func TestScanFinds(t *testing.T) {
	long := strings.Repeat("k", 70) // has the same slot in byLength as a name of length 6
	for _, c := range []struct {
		line  string
		names []string
		want  Info
	}{
		{`1`, []string{"a"}, Info{Spans: []Span{{}}}},
		{`["a"]`, []string{"a"}, Info{Spans: []Span{{}}}},
		{` { } `, []string{"a"}, Info{Object: true, Close: 3, Spans: []Span{{}}}},
		{`{"a":1}`, nil, Info{Object: true, Members: 1, Close: 6}},
		{`{"a":1}`, []string{"a"}, Info{Object: true, Members: 1, Close: 6, Spans: []Span{{1, 5, 6}}}},
		{`{"a":{}}`, []string{"a"}, Info{Object: true, Members: 1, Close: 7, Spans: []Span{{1, 5, 7}}}},
		{` { "a" : "x" , "b" : [ ] } `, []string{"b", "a"}, Info{Object: true, Members: 2, Close: 25, Spans: []Span{{15, 21, 24}, {3, 9, 12}}}},
		{`{"a":1,"a":22}`, []string{"a"}, Info{Object: true, Members: 2, Close: 13, Spans: []Span{{7, 11, 13}}}},
		{`{"x":{"a":1}}`, []string{"a"}, Info{Object: true, Members: 1, Close: 12, Spans: []Span{{}}}},
		{`{"\u005ferror":1}`, []string{"_error"}, Info{Object: true, Members: 1, Close: 16, Spans: []Span{{1, 15, 16}}}},
		{`{"_error":1,"\u005ferror":2}`, []string{"_error"}, Info{Object: true, Members: 2, Close: 27, Spans: []Span{{12, 26, 27}}}},
		{`{"\ud83d\ude00\n":1}`, []string{"😀\n"}, Info{Object: true, Members: 1, Close: 19, Spans: []Span{{1, 18, 19}}}},
		{`{"\ud800":1}`, []string{"\ufffd"}, Info{Object: true, Members: 1, Close: 11, Spans: []Span{{1, 10, 11}}}},
		{`{"\u0061":1}`, []string{"ab", "", "b"}, Info{Object: true, Members: 1, Close: 11, Spans: []Span{{}, {}, {}}}},
		{`{"":1}`, []string{""}, Info{Object: true, Members: 1, Close: 5, Spans: []Span{{1, 4, 5}}}},
		{`{"é":1}`, []string{"é"}, Info{Object: true, Members: 1, Close: 7, Spans: []Span{{1, 6, 7}}}},
		{`{"A":1}`, []string{"a"}, Info{Object: true, Members: 1, Close: 6, Spans: []Span{{}}}},
		{`{"a":1}`, []string{"a", "a"}, Info{Object: true, Members: 1, Close: 6, Spans: []Span{{1, 5, 6}, {1, 5, 6}}}},
		{`{"` + long + `":1}`, []string{"kkkkkk", long}, Info{Object: true, Members: 1, Close: 75, Spans: []Span{{}, {1, 74, 75}}}},
	} {
		var got Info
		if err := Want(c.names...).Scan([]byte(c.line), &got); err != nil {
			t.Errorf("Scan(%s): %v", c.line, err)
			continue
		}
		if got.Spans != nil && len(got.Spans) == 0 {
			got.Spans = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("Scan(%s): (-want +got)\n%s", c.line, diff)
		}
	}
}

func TestScanReusesInfo(t *testing.T) {
	var info Info
	scan := func(w *Wanted, line string) {
		t.Helper()
		if err := w.Scan([]byte(line), &info); err != nil {
			t.Fatal(err)
		}
	}
	scan(Want("a", "b"), `{"a":1,"b":2}`)
	scan(Want("b"), `{"a":1}`)
	if diff := cmp.Diff(Info{Object: true, Members: 1, Close: 6, Spans: []Span{{}}}, info); diff != "" {
		t.Errorf("shorter: (-want +got)\n%s", diff)
	}
	scan(Want("a", "b", "c"), `[]`)
	if diff := cmp.Diff(Info{Spans: make([]Span, 3)}, info); diff != "" {
		t.Errorf("longer: (-want +got)\n%s", diff)
	}
	scan(nil, `{}`)
	if diff := cmp.Diff(Info{Object: true, Close: 1, Spans: []Span{}}, info); diff != "" {
		t.Errorf("nil Wanted: (-want +got)\n%s", diff)
	}
}

func TestScanDoesNotAllocate(t *testing.T) {
	w := Want("id", "a name that is longer than most, longer than sixty-four bytes in any case")
	line := []byte(`{"id":1,"x":[{"id":2}],"a \u006eame that is longer than most, longer than sixty-four bytes in any case":"é\n","\ud83d\ude00":0}`)
	var info Info
	if n := testing.AllocsPerRun(100, func() {
		if err := w.Scan(line, &info); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Scan allocates %v times", n)
	}
	if !info.Spans[0].Present() || !info.Spans[1].Present() {
		t.Errorf("members not found: %v", info.Spans)
	}
	if n := testing.AllocsPerRun(100, func() { Valid(line) }); n != 0 {
		t.Errorf("Valid allocates %v times", n)
	}
}

// TestWantMany: any number of names is found, kept in order, and replaced.
func TestWantMany(t *testing.T) {
	for _, n := range []int{63, 64, 65, 1000} {
		list, members := make([]string, n), make([]Member, n)
		line, want := "{", "{"
		for k := range n {
			list[k] = fmt.Sprint("n", n-1-k) // in another order than the line
			members[k] = Member{list[k], fmt.Append(nil, n-1-k)}
			line += fmt.Sprintf(`"n%d":"x",`, k)
			want += fmt.Sprintf(`"n%d":%d,`, k, k)
		}
		line, want = strings.Replace(line, "n62", `n\u00362`, 1)+`"other":true}`, strings.Replace(want, "n62", `n\u00362`, 1)+`"other":true}`
		info := mustScan(t, Want(list...), line)
		if got, kept := string(Keep(nil, []byte(line), info)), strings.Replace(line, `,"other":true`, "", 1); got != kept {
			t.Errorf("%d names: Keep returns %s, want %s", n, got, kept)
		}
		if got := string(Splice(nil, []byte(line), info, members)); got != want {
			t.Errorf("%d names: Splice returns %s, want %s", n, got, want)
		}
	}
}
