package explain

import (
	"slices"
	"strings"
	"testing"
)

// TestEntries: an entry says something about each of its parts, and no pattern is in two.
func TestEntries(t *testing.T) {
	entries, patterns := make(map[string]string), make(map[string]string)
	for _, area := range Areas() {
		if area.Title == "" || area.Page == "" {
			t.Errorf("%+v: no title or page", area)
		}
		for _, e := range area.Entries {
			switch {
			case entries[e.Title] != "":
				t.Errorf("%s has two entries %q", entries[e.Title], e.Title)
			case len(strings.Fields(e.Cause)) < 4 || e.Fix == "" || len(e.Messages)+len(e.Others) == 0:
				t.Errorf("%s: cause, fix or messages are missing", e.Title)
			case !strings.HasSuffix(e.Cause, "."):
				t.Errorf("%s: write sentences", e.Title)
			}
			entries[e.Title] = area.Title
			for _, pattern := range slices.Concat(e.Messages, e.Others) {
				if other := patterns[pattern]; other != "" && other != e.Title {
					t.Errorf("%q is in %q and in %q", pattern, other, e.Title)
				}
				patterns[pattern] = e.Title
			}
		}
	}
	if len(entries) < 100 {
		t.Errorf("only %d entries", len(entries))
	}
}

// TestFind: what users paste finds its entry, with what surrounds a message, broken lines
// and other case.
func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"gpurun: input data.jsonl does not exist":                                               "The input does not exist",
		"INPUT data.jsonl\n  does not\nexist":                                                   "The input does not exist",
		"gpurun: read input a.gz from line 7 on: truncated gzip file; re-create the file, or …": "A compressed file is truncated or corrupt",
		"ModuleNotFoundError: No module named 'torch'":                                          "A package is missing",
		"write out.jsonl: no space left on device":                                              "The output file cannot be written",
		"gpurun: bug: the output has 3 of 4 records":                                            "A bug in gpurun",
	} {
		if found := Find(text); len(found) == 0 || found[0].Title != want {
			t.Errorf("%q: %+v, want %q", text, found, want)
		}
	}
	for _, text := range []string{"", "hello", "serves"} { // "serve: …" is not in serves
		if found := Find(text); len(found) > 0 {
			t.Errorf("%q: %+v", text, found)
		}
	}
}

// TestCovers: only a star covers other messages.
func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, message string
		want             bool
	}{
		{"read …: …", "read …: …", true},
		{"read …: …", "read input …: …", false},
		{"read *: …", "read input …: …", true},
		{"read *: …", "reads input …: …", false},
		{"* early log: …", "open early log: …", true},
		{"bug: *", "bug: a … b", true},
		{"a * b * c", "a x b y c", true},
		{"a * b * c", "a x c", false},
	} {
		if got := (matcher{pattern: c.pattern}).covers(c.message); got != c.want {
			t.Errorf("%q covers %q: %v", c.pattern, c.message, got)
		}
	}
}
