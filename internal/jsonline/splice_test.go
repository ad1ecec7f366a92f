package jsonline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func names(members []Member) []string {
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

func mustScan(t *testing.T, w *Wanted, line string) *Info {
	t.Helper()
	var info Info
	if err := w.Scan([]byte(line), &info); err != nil {
		t.Fatalf("Scan(%s): %v", line, err)
	}
	return &info
}

func TestSplice(t *testing.T) {
	member := func(name, value string) Member { return Member{name, []byte(value)} }
	for _, c := range []struct {
		line    string
		members []Member
		want    string
	}{
		{`{}`, nil, `{}`},
		{`{}`, []Member{member("a", "1")}, `{"a":1}`},
		{` { } `, []Member{member("a", "1"), member("b", "2")}, ` { "a":1,"b":2} `},
		{`{"x":0}`, []Member{member("a", "1"), member("b", "2")}, `{"x":0,"a":1,"b":2}`},
		{"{\"x\":0 }\t", []Member{member("a", "[1, 2]")}, "{\"x\":0 ,\"a\":[1, 2]}\t"},
		{`{"a":0}`, []Member{member("a", `"long"`)}, `{"a":"long"}`},
		{`{"a" : {"b":[]} , "x":1.50}`, []Member{member("a", "0")}, `{"a" : 0 , "x":1.50}`},
		{`{"a":0,"b":0,"c":0}`, []Member{member("c", "3"), member("d", "4"), member("a", "1")}, `{"a":1,"b":0,"c":3,"d":4}`},
		{`{"a":0,"a":1,"a":2}`, []Member{member("a", "9")}, `{"a":0,"a":1,"a":9}`},
		{`{"\u0061":0}`, []Member{member("a", "1")}, `{"\u0061":1}`},
		{`{"x":{"a":0}}`, []Member{member("a", "1")}, `{"x":{"a":0},"a":1}`},
		{`{"x":"}"}`, []Member{member("q\"é\n", "null")}, `{"x":"}","q\"é\n":null}`},
	} {
		info := mustScan(t, Want(names(c.members)...), c.line)
		got := string(Splice([]byte("before|"), []byte(c.line), info, c.members))
		if want := "before|" + c.want; got != want {
			t.Errorf("Splice(%s):\n got %s\nwant %s", c.line, got, want)
		}
	}
}

func TestSplicePanics(t *testing.T) {
	for _, line := range []string{`[]`, `{}`} {
		info := mustScan(t, Want("a"), line)
		members := make([]Member, 1)
		if info.Object {
			members = make([]Member, 2) // one more than was scanned for
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Splice(%s, %d members): no panic", line, len(members))
				}
			}()
			Splice(nil, []byte(line), info, members)
		}()
	}
}

func TestKeep(t *testing.T) {
	for _, c := range []struct {
		line  string
		names []string
		want  string
	}{
		{`{}`, []string{"id"}, `{}`},
		{`[1]`, []string{"id"}, `{}`},
		{`{"x":1}`, nil, `{}`},
		{`{"id":1,"x":2,"url":"x"}`, []string{"id", "url"}, `{"id":1,"url":"x"}`},
		{`{"id":1,"x":2,"url":"x"}`, []string{"url", "none", "id"}, `{"id":1,"url":"x"}`},
		{` {"\u0069d" : 1.0 , "x":2} `, []string{"id"}, `{"\u0069d" : 1.0}`},
		{`{"id":1,"url":2,"id":3}`, []string{"id", "url"}, `{"url":2,"id":3}`},
		{`{"id":1}`, []string{"id", "id"}, `{"id":1}`},
	} {
		info := mustScan(t, Want(c.names...), c.line)
		got := string(Keep([]byte("before|"), []byte(c.line), info))
		if want := "before|" + c.want; got != want {
			t.Errorf("Keep(%s, %q):\n got %s\nwant %s", c.line, c.names, got, want)
		}
	}
}

// rawMember is one call of Members.
type rawMember struct{ Key, Name, Value string }

func allMembers(line []byte) []rawMember {
	var all []rawMember
	Members(line, func(rawKey []byte, name string, value []byte) bool {
		all = append(all, rawMember{string(rawKey), name, string(value)})
		return true
	})
	return all
}

func TestMembers(t *testing.T) {
	for _, c := range []struct {
		line string
		want []rawMember
	}{
		{``, nil}, {`1`, nil}, {`["a"]`, nil}, {`{}`, nil}, {` { } `, nil},
		{`{"a":1}`, []rawMember{{`"a"`, "a", "1"}}},
		{` { "a" : [1, 2] , "\u0062\ud83d\ude00\/\"" : {"c":3} , "a":"" } `, []rawMember{
			{`"a"`, "a", "[1, 2]"},
			{`"\u0062\ud83d\ude00\/\""`, `b😀/"`, `{"c":3}`},
			{`"a"`, "a", `""`},
		}},
		{`{"\ud800\ud800\u0041\b\f\n\r\t\\":0}`, []rawMember{
			{`"\ud800\ud800\u0041\b\f\n\r\t\\"`, "\ufffd\ufffdA\b\f\n\r\t\\", "0"},
		}},
	} {
		if diff := cmp.Diff(c.want, allMembers([]byte(c.line))); diff != "" {
			t.Errorf("Members(%s): (-want +got)\n%s", c.line, diff)
		}
	}
}

func TestMembersStops(t *testing.T) {
	calls := 0
	Members([]byte(`{"a":1,"b":2,"c":3}`), func([]byte, string, []byte) bool {
		calls++
		return calls < 2
	})
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
}
