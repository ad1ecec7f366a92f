package csv

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/chunk/input/format"
)

// read returns the JSON lines of a table.
func read(t testing.TB, table string, separator byte, columns ...string) (string, error) {
	t.Helper()
	r, err := NewReader(strings.NewReader(table), separator, format.Options{Columns: columns})
	if err != nil {
		return "", err
	}
	lines, err := io.ReadAll(r)
	return string(lines), err
}

func TestReader(t *testing.T) {
	for _, c := range []struct{ name, table, want string }{
		{"plain", "id,text\n1,a\n2,b\n", `{"id":"1","text":"a"}` + "\n" + `{"id":"2","text":"b"}` + "\n"},
		{"no line end", "id,text\n1,a", `{"id":"1","text":"a"}` + "\n"},
		{"carriage returns", "id,text\r\n1,a\r\n", `{"id":"1","text":"a"}` + "\n"},
		{"byte order mark", "\ufeffid,text\n1,a\n", `{"id":"1","text":"a"}` + "\n"},
		{"quotes", "id,text\n1,\"a, \"\"b\"\"\"\n", `{"id":"1","text":"a, \"b\""}` + "\n"},
		{"quoted names", "\"id\",\"a \"\"b\"\"\"\n1,2\n", `{"id":"1","a \"b\"":"2"}` + "\n"},
		{"line ends in a value", "id,text\n1,\"a\nb\r\nc\"\n2,d\n", `{"id":"1","text":"a\nb\r\nc"}` + "\n" + `{"id":"2","text":"d"}` + "\n"},
		{"blank lines", "\n\nid,text\n\n1,a\n\r\n2,b\n\n", `{"id":"1","text":"a"}` + "\n" + `{"id":"2","text":"b"}` + "\n"},
		{"empty values", "a,b,c\n,,\n\"\",x,\n", `{"a":"","b":"","c":""}` + "\n" + `{"a":"","b":"x","c":""}` + "\n"},
		{"quote within a value", "id,text\n1,a 5\" disk\n", `{"id":"1","text":"a 5\" disk"}` + "\n"},
		{"spaces are kept", "id,text\n 1 , a\n", `{"id":" 1 ","text":" a"}` + "\n"},
		{"one column", "text\na\nb\n", `{"text":"a"}` + "\n" + `{"text":"b"}` + "\n"},
		{"header only", "id,text\n", ""},
		{"quoted at the end", "id,text\n1,\"a\"", `{"id":"1","text":"a"}` + "\n"},
		{"quoted, carriage return at the end", "id,text\n1,\"a\"\r", `{"id":"1","text":"a"}` + "\n"},
		{"too few", "id,text\n1\n2,b\n", `{"_raw":"1","_error":{"kind":"row","message":"line 2: 1 value, but the header has 2 columns"}}` + "\n" + `{"id":"2","text":"b"}` + "\n"},
		{"too many, after a long value", "id,text\n1,\"a\n\n\"\n2,b,c\n", `{"id":"1","text":"a\n\n"}` + "\n" + `{"_raw":"2,b,c","_error":{"kind":"row","message":"line 5: 3 values, but the header has 2 columns"}}` + "\n"},
		{"text after a quote", "id,text\n1,\"a\"b\n2,c\n", `{"_raw":"1,\"a\"b","_error":{"kind":"row","message":"line 2: text after a closing quote"}}` + "\n" + `{"id":"2","text":"c"}` + "\n"},
		{"not UTF-8", "id,text\n1,\xe9\n", `{"_raw_b64":"MSzp","_error":{"kind":"row","message":"line 2: not valid UTF-8"}}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(t, c.table, ',')
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTabs(t *testing.T) {
	got, err := read(t, "id\ttext\n1\ta,b\n2\t\"c\td\"\n", '\t')
	want := `{"id":"1","text":"a,b"}` + "\n" + `{"id":"2","text":"c\td"}` + "\n"
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestTypes(t *testing.T) {
	got, err := read(t, "id,score,ok,doc,a:b\n1,0.5,TRUE,\"[1,\n2]\",x\n,,,,\n1.5,0,true,1,x\n1,NaN,true,1,x\n1,0x1p3,true,1,x\n1,0,yes,1,x\n1,0,true,{,x\n", ',',
		"a:b", "id:int64", "score:float64", "ok:bool", "doc:json")
	want := `{"a:b":"x","id":1,"score":0.5,"ok":true,"doc":[1, 2]}` + "\n" + `{"a:b":"","id":null,"score":null,"ok":null,"doc":null}` + "\n"
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%s, %v", got, err)
	}
	for i, message := range []string{
		`line 5: column \"id\" is not of type int64`, `line 6: column \"score\" is not of type float64`, `line 7: column \"score\" is not of type float64`,
		`line 8: column \"ok\" is not of type bool`, `line 9: column \"doc\" is not of type json`,
	} {
		if line := strings.Split(got, "\n")[2+i]; !strings.Contains(line, message) {
			t.Errorf("%s, want %s", line, message)
		}
	}
}

func TestMembers(t *testing.T) {
	got, err := read(t, "id,text,other\n1,a,x\n", ',', "text", "id")
	if want := `{"text":"a","id":"1"}` + "\n"; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	for member, want := range map[string]string{
		"txt":    `there is no column "txt"; did you mean "text"?`,
		"title":  `there is no column "title"; the columns are id, text, other`,
		"id:int": `column "id": unknown type "int"; the types are bool, float64, int64, uint64, json and string`,
	} {
		if _, err := read(t, "id,text,other\n1,a,x\n", ',', member); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r, err := NewReader(strings.NewReader("id,text\n1,a\n"), ',', format.Options{Members: []string{"text", "score"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != `{"text":"a"}`+"\n" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, table, want string }{
		{"empty", "", "the file has no header"},
		{"blank", "\n\n", "the file has no header"},
		{"empty name", "a,,c\n1,2,3\n", "line 1: column 2 has no name in the header"},
		{"duplicate name", "\na,b,a\n1,2,3\n", `line 2: columns 1 and 3 both have the name "a"`},
		{"header not UTF-8", "a,\xe9\n", "line 1: the header is not valid UTF-8; convert the file first, for example with iconv"},
		{"open quote", "a,b\n1,2\n3,\"4\n5,6\n", "line 3: the row has a quote that is never closed"},
		{"open quote in the header", "a,\"b\n1,2\n", "line 1: the row has a quote that is never closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := read(t, c.table, ',')
			if err == nil || err.Error() != c.want {
				t.Errorf("%q, %v, want %s", got, err, c.want)
			}
		})
	}
	r, err := NewReader(iotest.TimeoutReader(strings.NewReader("a,b\n"+strings.Repeat("1,2\n", 1<<20))), ',', format.Options{})
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("an error of the stream: %v", err)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name, head string
		whole      bool
		want       bool
	}{
		{"table", "id,text\n1,a\n2,b\n", true, true},
		{"table, cut", "id,text\n1,a\n2,b\n3,", false, true},
		{"quoted", "id,text\n1,\"a,\nb\"\n2,b\n", true, true},
		{"JSON lines", "{\"a\":1,\"b\":2}\n{\"a\":1,\"b\":2}\n{\"a\":1,\"b\":2}\n", true, false},
		{"JSON arrays", "[1,2]\n[3,4]\n[5,6]\n", true, false},
		{"broken JSON first", "{\"a\":1,\n{\"a\":2,\n{\"a\":3,\n", true, false},
		{"JSON strings", "\"a,b\"\n\"c,d\"\n\"e,f\"\n", true, false},
		{"JSON lines after a broken one", "no, no\n" + strings.Repeat("{\"a\":1,\"b\":2}\n", 20), true, false},
		{"numbers", "1\n2\n3\n", true, false},
		{"text", "Hello, world\nThis is text\nwithout columns\n", true, false},
		{"one column", "id\n1\n2\n", true, false},
		{"ragged", "id,text\n1,a\n2\n", true, false},
		{"one row", "id,text\n1,a\n", true, false},
		{"empty", "", true, false},
		{"binary", "a,b\n\x00,1\n\x00,2\n", true, false},
		{"duplicate names, an error later", "a,a\n1,2\n3,4\n", true, true},
		{"one broken row in ten", "a,b\n" + strings.Repeat("1,2\n", 9) + "3\n", true, true},
		{"two broken rows in eleven", "a,b\n" + strings.Repeat("1,2\n", 9) + "3\n4\n", true, false},
	} {
		if got := Match([]byte(c.head), c.whole, ','); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// FuzzReader: whatever the bytes, every line is a JSON object, and the result does not
// depend on how the bytes arrive.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"id,text\n1,a\n", "a,b\r\n\"x\"\"\ny\",2\r\n", "\ufeffa,b\n1\n", "a,\"b\n", "a,b\n1,\"c\"d\n\n\xff,\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, table []byte) {
		got, err := read(t, string(table), ',')
		for line := range strings.Lines(got) {
			var members map[string]any
			if json.Unmarshal([]byte(line), &members) != nil || !strings.HasSuffix(line, "\n") {
				t.Fatalf("%q", line)
			}
		}
		r, slowErr := NewReader(iotest.OneByteReader(strings.NewReader(string(table))), ',', format.Options{})
		if slowErr == nil {
			slow, err := io.ReadAll(r)
			slowErr = err
			if string(slow) != got {
				t.Errorf("byte by byte: %q, want %q", slow, got)
			}
		}
		if (err == nil) != (slowErr == nil) {
			t.Errorf("%v, byte by byte %v", err, slowErr)
		}
	})
}
