package decode

import (
	"strings"
	"testing"
)

func TestSniffRecognizesOtherFormats(t *testing.T) {
	for name, one := range map[string]struct{ head, format string }{
		"gzip":               {"\x1f\x8b\x08\x00", "gzip-compressed"},
		"UTF-16":             {"\xff\xfe{\x00}\x00\n\x00", "UTF-16 text"},
		"UTF-16, big":        {"\xfe\xff\x00{\x00}\x00\n", "UTF-16 text"},
		"UTF-16, no mark":    {"{\x00}\x00\n\x00", "UTF-16 text"},
		"UTF-16, big, none":  {"\x00{\x00}\x00\n", "UTF-16 text"},
		"array":              {"[\n  {\"a\": 1},\n  {\"a\": 2}\n]\n", "one JSON array"},
		"array, first glued": {"[{\"a\": 1},\n {\"a\": 2}]\n", "one JSON array"},
		"spreadsheet":        {"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00" + "[Content_Types].xml", "a spreadsheet or another office document"},
		"tar":                {"in.jsonl" + strings.Repeat("\x00", 249) + "ustar\x0000" + strings.Repeat("\x00", 248) + "{\"a\":1}\n", "tar archive"},
		"bars":               {"id|text\n1|a\n2|b\n3|c\n", "separated by |"},
		"semicolons":         {"id;text\n1;a\n2;b\n3;c\n", "separated by semicolons"},
		"pretty-printed":     {"{\n  \"a\": 1,\n  \"b\": 2\n}\n", "one document over several lines"},

		"mark":                {"\ufeff{\"a\":1}\n", ""},
		"lines":               {"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n", ""},
		"arrays, one a line":  {"[1,2]\n[3,4]\n[5,6]\n", ""},
		"numbers":             {"1\n2\n3\n", ""},
		"text":                {"hello\nworld\nagain\n", ""},
		"text with commas":    {"hello, you\nworld\nand, again, and\n", ""},
		"one bad line":        {"nope, no\n{\"a\":1}\n{\"a\":2}\n", ""},
		"first line cut":      {"{\"a\":\n{\"b\":1}\n", ""},
		"long line, no end":   {"{\"a\":\"" + strings.Repeat("x", 1000), ""},
		"two lines of a text": {"a,b\nc,d\n", ""},
		"empty":               {"", ""},
	} {
		found := sniff([]byte(one.head))
		switch {
		case found == nil && one.format != "":
			t.Errorf("%s: not recognized", name)
		case found != nil && (one.format == "" || !strings.Contains(found.format, one.format)):
			t.Errorf("%s: taken for %s", name, found.format)
		}
	}
}

// TestArchives: records in an archive can be piped; of images, records name the files.
func TestArchives(t *testing.T) {
	tar := func(name string) string {
		return name + strings.Repeat("\x00", 257-len(name)) + "ustar\x0000" + strings.Repeat("\x00", 248) + "x"
	}
	zip := func(name string) string {
		return "PK\x03\x04" + strings.Repeat("\x00", 22) + string(rune(len(name))) + "\x00\x00\x00" + name + "data"
	}
	for head, want := range map[string]string{
		tar("in.jsonl"): "tar -xOf x | gpurun run … -", tar("cat.jpg"): "extract it (tar -xf x) and list its files",
		zip("d/in.csv"): "unzip -p x | gpurun run … -", zip("cat.png"): "extract it (unzip x) and list its files",
	} {
		found := sniff([]byte(head))
		if found == nil {
			t.Errorf("%.20q: not recognized", head)
		} else if err := found.refuse("input x", "x"); !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", head, err)
		}
	}
}
