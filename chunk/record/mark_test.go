package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/chunktest"
	"github.com/gpurun/gpurun/internal/fault"
)

// TestWriteMarkedGolden checks the documented format.
func TestWriteMarkedGolden(t *testing.T) {
	const value = `{"kind":"record","message":"no \"text\"","step":"embed","line":7}`
	mark := Mark{Kind: fault.Record, Message: `no "text"`, Step: "embed", Line: 7}
	for _, c := range []struct{ name, line, want string }{
		{"object", `{"id":1,"text":"a"}`, `{"id":1,"text":"a","_error":` + value + `}`},
		{"empty object", `{}`, `{"_error":` + value + `}`},
		{"empty with space", `{ }`, `{ "_error":` + value + `}`},
		{"space before the brace", `{"a":1 }`, `{"a":1 ,"_error":` + value + `}`},
		{"space around", "\t {\"a\":1} ", "\t {\"a\":1,\"_error\":" + value + "} "},
		{"marked before", `{"_error":{"kind":"oom"},"a":1}`, `{"_error":` + value + `,"a":1}`},
		{"marked, with space", `{"a":1, "_error" : null }`, `{"a":1, "_error" : ` + value + ` }`},
		{"marked, escaped key", `{"\u005ferror":1}`, `{"\u005ferror":` + value + `}`},
		{"marked twice", `{"_error":1,"_error":2}`, `{"_error":1,"_error":` + value + `}`},
		{"mark inside", `{"a":{"_error":1}}`, `{"a":{"_error":1},"_error":` + value + `}`},
		{"duplicate keys", `{"a":1,"a":2}`, `{"a":1,"a":2,"_error":` + value + `}`},
		{"numbers untouched", `{"a":1.0e+2,"b":"\u00e9é"}`, `{"a":1.0e+2,"b":"\u00e9é","_error":` + value + `}`},
		{"array", `[1,2]`, `{"_raw":"[1,2]","_error":` + value + `}`},
		{"number", `42`, `{"_raw":"42","_error":` + value + `}`},
		{"string", `"a"`, `{"_raw":"\"a\"","_error":` + value + `}`},
		{"invalid JSON", `{"a":`, `{"_raw":"{\"a\":","_error":` + value + `}`},
		{"two values", `{}{}`, `{"_raw":"{}{}","_error":` + value + `}`},
		{"NUL", "a\x00b", `{"_raw":"a\u0000b","_error":` + value + `}`},
		{"carriage return", "a\rb", `{"_raw":"a\rb","_error":` + value + `}`},
		{"empty", ``, `{"_raw":"","_error":` + value + `}`},
		{"not UTF-8", "{\"a\":\"\xff\"}", `{"_raw_b64":"eyJhIjoi/yJ9","_error":` + value + `}`},
		{"not UTF-8, padded", "\xff", `{"_raw_b64":"/w==","_error":` + value + `}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := WriteMarked(&got, []byte(c.line), mark); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want+"\n", got.String()); diff != "" {
				t.Error(diff)
			}
			checkMarked(t, []byte(c.line), got.Bytes(), mark)
		})
	}
}

// checkMarked checks for one line of valid JSON with the line's members and the mark.
func checkMarked(t *testing.T, line, got []byte, mark Mark) {
	t.Helper()
	if bytes.IndexByte(got, '\n') != len(got)-1 || !utf8.Valid(got) {
		t.Errorf("%q is not one line of text", got)
	}
	var members map[string]any
	if err := json.Unmarshal(got, &members); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	want := map[string]any{"kind": mark.Kind.String(), "message": string([]rune(mark.Message)), "line": float64(mark.Line)}
	if mark.Step != "" {
		want["step"] = mark.Step
	}
	if diff := cmp.Diff(any(want), members[ErrorMember]); diff != "" {
		t.Errorf("mark: %s", diff)
	}
	delete(members, ErrorMember)
	var before map[string]any
	if utf8.Valid(line) && json.Unmarshal(line, &before) == nil && before != nil {
		delete(before, ErrorMember)
	} else if utf8.Valid(line) {
		before = map[string]any{"_raw": string(line)}
	} else {
		before = map[string]any{"_raw_b64": base64.StdEncoding.EncodeToString(line)}
	}
	if diff := cmp.Diff(before, members); diff != "" {
		t.Errorf("members: %s", diff)
	}
}

func TestWriteMarkedMessages(t *testing.T) {
	for _, mark := range []Mark{
		{},
		{Kind: fault.Crash, Message: "two\nlines\r\n\tand a tab"},
		{Kind: fault.Kind(200), Message: "\x00\u2028 \"quoted\" \\"},
		{Kind: fault.OOM, Message: "a\xffb", Step: "\"x\"", Line: 1 << 62 >> 10},
	} {
		for _, line := range []string{`{"a":1}`, `[]`, "\xff"} {
			var got bytes.Buffer
			if err := WriteMarked(&got, []byte(line), mark); err != nil {
				t.Fatal(err)
			}
			checkMarked(t, []byte(line), got.Bytes(), mark)
		}
	}
}

// fullAfter accepts this many bytes and no more.
type fullAfter int

var errFull = errors.New("full")

func (f *fullAfter) Write(p []byte) (int, error) {
	if len(p) > int(*f) {
		n := int(*f)
		*f = 0
		return n, errFull
	}
	*f -= fullAfter(len(p))
	return len(p), nil
}

// TestWriteMarkedFails: an error at any byte is reported.
func TestWriteMarkedFails(t *testing.T) {
	for _, line := range []string{`{"a":1}`, `{}`, `{"_error":1}`, `[1]`, "\xff\xfe"} {
		var whole bytes.Buffer
		if err := WriteMarked(&whole, []byte(line), Mark{}); err != nil {
			t.Fatal(err)
		}
		for n := range whole.Len() {
			full := fullAfter(n)
			if err := WriteMarked(&full, []byte(line), Mark{}); !errors.Is(err, errFull) {
				t.Errorf("%q, full after %d bytes: %v", line, n, err)
			}
		}
	}
}

func FuzzWriteMarked(f *testing.F) {
	for _, s := range append([]string{`{"a":1}`, `{}`, `{"_error":1,"a":[{}]}`, `{"_error":1,"_error":2}`, `[1]`, `{"a":`, "\xff"}, chunktest.Nasty...) {
		f.Add([]byte(s), "message")
	}
	f.Fuzz(func(t *testing.T, line []byte, message string) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // not a line
		}
		mark := Mark{Kind: fault.Record, Message: message, Step: "step", Line: 3}
		var got bytes.Buffer
		if err := WriteMarked(&got, line, mark); err != nil {
			t.Fatal(err)
		}
		checkMarked(t, line, got.Bytes(), mark)
	})
}
