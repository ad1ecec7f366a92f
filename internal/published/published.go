// Package published compares what programs of users may rely on, one line each, with a list
// in a file: lines may be added, and never changed or removed.
package published

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Variable makes tests add new lines to the lists, which is done before a release.
const Variable = "GPURUN_UPDATE"

// Check reports every line of the file that is no longer published. With Variable set,
// it adds the new ones to the file.
func Check(t testing.TB, path string, now map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && os.Getenv(Variable) == "" {
		t.Fatal(err)
	}
	before := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		before[strings.TrimSpace(line)] = true
	}
	for _, line := range slices.Sorted(maps.Keys(before)) {
		if !now[line] {
			t.Errorf("%s: %q is gone or has another type, and programs may rely on it", path, line)
		}
	}
	if os.Getenv(Variable) == "" {
		return
	}
	maps.Copy(before, now)
	lines := slices.Sorted(maps.Keys(before))
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}
