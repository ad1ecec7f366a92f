package python_test

import (
	"strings"
	"testing"
)

// Of results without an end no more are taken than show that they are too many.
func TestEndlessResults(t *testing.T) {
	const once = "asked = 0\ndef endless():\n    global asked\n    while asked < 1000:\n        asked += 1\n        yield {'x': asked}\n"
	const thenCount = "\ndef process(batch):\n    if 'asked' in batch: return {'n': [asked]}\n    return "
	for name, test := range map[string]struct{ source, following, want string }{
		"records":           {"endless()", "", "process returned more than 1 result for 1 record"},
		"a column":          {"{'x': endless()}", "", "process returned more than 1 value in column 'x' for 1 record"},
		"a column of steps": {"{'x': endless()}", "def process(batch): return {'m': batch['n']}", "process returned more than 1 value in column 'x' for 1 record"},
	} {
		t.Run(name, func(t *testing.T) {
			source := once + thenCount + test.source
			k := start(t, source)
			if test.following != "" {
				k = start(t, source, then(t, test.following))
			}
			if _, err := call(t, k, "{}"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Error(err)
			}
			if got, err := call(t, k, `{"asked":true}`); err != nil || !strings.HasSuffix(got[0], "=2") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
