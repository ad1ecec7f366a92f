package jsonline

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func addLines(add func(string)) {
	for _, line := range accepted {
		add(line)
	}
	for _, c := range rejected {
		add(c.line)
	}
	add(`{"id":7,"text":"a \"b\"","\u005ferror":{"kind":"record"},"id":[8]}`)
	add(` { "a" : -1.5e3 , "b" : { "a" : null } , "\ud800" : "é漢😀" } `)
}

// decode is the reference: the members of an object by name, with the last of a duplicate
// key, or nil if line is not an object.
func decode(t *testing.T, line []byte) map[string]json.RawMessage {
	t.Helper()
	if strings.TrimLeft(string(line), " \t\r\n")[0] != '{' {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		t.Fatalf("decode %q: %v", line, err)
	}
	return members
}

func FuzzScan(f *testing.F) {
	addLines(func(line string) { f.Add([]byte(line), "a") })
	f.Fuzz(func(t *testing.T, line []byte, name string) {
		valid := json.Valid(line) && utf8.Valid(line)
		if Valid(line) != valid {
			t.Fatalf("Valid(%q) = %v", line, !valid)
		}
		// Look for each name in the line, and for one that may be absent.
		names := []string{name, "_error"}
		var members map[string]json.RawMessage
		if valid {
			members = decode(t, line)
			for name := range members {
				names = append(names, name)
			}
		}
		var info Info
		err := Want(names...).Scan(line, &info)
		if (err == nil) != valid {
			t.Fatalf("Scan(%q) = %v, want valid %v", line, err, valid)
		}
		if object := Members(line, func([]byte, string, []byte) bool { return true }); object != (valid && members != nil) {
			t.Fatalf("Members(%q) = %v", line, object)
		}
		if !valid {
			se := err.(*SyntaxError)
			if se.Offset < 0 || se.Offset > len(line) || se.Msg == "" {
				t.Fatalf("Scan(%q) = %#v", line, se)
			}
			return
		}
		if info.Object != (members != nil) || info.Members < len(members) || info.Members > 0 && len(members) == 0 {
			t.Fatalf("Scan(%q) = %+v with members %q", line, info, members)
		}
		if info.Object && strings.TrimRight(string(line), " \t\r\n") != string(line[:info.Close])+"}" {
			t.Fatalf("Scan(%q): closing brace at %d", line, info.Close)
		}
		for k, span := range info.Spans {
			want, present := members[names[k]]
			if span.Present() != present || string(line[span.ValueStart:span.ValueEnd]) != string(want) {
				t.Fatalf("Scan(%q): %q is %v, want %q", line, names[k], span, want)
			}
			var text string
			if len(want) > 0 && want[0] == '"' && json.Unmarshal(want, &text) == nil && TextLen(want) != len(text) {
				t.Fatalf("TextLen(%s) = %d, want %d", want, TextLen(want), len(text))
			}
			if present && line[span.KeyStart] != '"' {
				t.Fatalf("Scan(%q): key of %q at %d", line, names[k], span.KeyStart)
			}
		}
		checkKeep(t, line, &info, names, members)
	})
}

func checkKeep(t *testing.T, line []byte, info *Info, names []string, members map[string]json.RawMessage) {
	want := map[string]json.RawMessage{}
	for _, name := range names {
		if value, ok := members[name]; ok {
			want[name] = value
		}
	}
	kept := Keep(nil, line, info)
	if diff := cmp.Diff(want, decode(t, kept)); diff != "" {
		t.Fatalf("Keep(%q, %q) = %q: (-want +got)\n%s", line, names, kept, diff)
	}
}

func FuzzSplice(f *testing.F) {
	addLines(func(line string) {
		f.Add([]byte(line), "a", []byte(`1`), "_error", []byte(`{"kind":"record"}`))
		f.Add([]byte(line), "", []byte(`"x"`), "id", []byte(` [ ] `))
	})
	f.Fuzz(func(t *testing.T, line []byte, name1 string, value1 []byte, name2 string, value2 []byte) {
		if !Valid(value1) || !Valid(value2) || !utf8.ValidString(name1) || !utf8.ValidString(name2) || name1 == name2 {
			t.Skip()
		}
		members := []Member{{name1, value1}, {name2, value2}}
		var info Info
		if err := Want(name1, name2).Scan(line, &info); err != nil || !info.Object {
			t.Skip()
		}
		got := Splice(nil, line, &info, members)
		if !json.Valid(got) || !utf8.Valid(got) {
			// Two lines just below the depth limit may combine to one above it.
			if strings.Count(string(got), "[")+strings.Count(string(got), "{") > maxDepth {
				t.Skip()
			}
			t.Fatalf("Splice(%q, %q) = %q is not valid", line, members, got)
		}
		// In order, with every key as written: the members of line, with the last of each
		// name changed, then the new ones.
		want := allMembers(line)
		for _, m := range members {
			value := strings.Trim(string(m.Value), " \t\r\n")
			last := -1
			for k := range want {
				if want[k].Name == m.Name {
					last = k
				}
			}
			if last >= 0 {
				want[last].Value = value
			} else {
				want = append(want, rawMember{string(AppendString(nil, m.Name)), m.Name, value})
			}
		}
		if diff := cmp.Diff(want, allMembers(got)); diff != "" {
			t.Fatalf("Splice(%q, %q) = %q: (-want +got)\n%s", line, members, got, diff)
		}
		byName := map[string]json.RawMessage{}
		for _, m := range want {
			byName[m.Name] = json.RawMessage(m.Value)
		}
		if diff := cmp.Diff(byName, decode(t, got)); diff != "" {
			t.Fatalf("Splice(%q, %q) = %q decodes to: (-want +got)\n%s", line, members, got, diff)
		}
	})
}

func FuzzAppendString(f *testing.F) {
	addLines(func(line string) { f.Add(line) })
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString(nil, s)
		if !Valid(got) {
			t.Fatalf("AppendString(%q) = %q is not valid", s, got)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.Join(toRunes(s), "") {
			t.Fatalf("AppendString(%q) = %q, decodes to %q, %v", s, got, back, err)
		}
		if string(appendUnquoted(nil, got[1:len(got)-1])) != back || !unquotesTo(got[1:len(got)-1], back) {
			t.Fatalf("%q does not unquote to %q", got, back)
		}
		if n := TextLen(got); n != len(back) {
			t.Fatalf("TextLen(%q) = %d, want %d", got, n, len(back))
		}
		var w strings.Builder
		if err := WriteString(&w, []byte(s)); err != nil || w.String() != string(got) {
			t.Fatalf("WriteString(%q) = %q, %v, want %q", s, w.String(), err, got)
		}
	})
}

// toRunes splits s into characters, with U+FFFD for each invalid byte.
func toRunes(s string) []string {
	var all []string
	for _, r := range s {
		all = append(all, string(r))
	}
	return all
}
