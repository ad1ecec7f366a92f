package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bad lists what a program that reads the JSON would have to special-case: null instead of
// an empty list, and a zero time.
func bad(path string, value any) (found []string) {
	switch v := value.(type) {
	case nil:
		return []string{path + " is null"}
	case string:
		if strings.HasPrefix(v, "0001-01-01") {
			return []string{path + " is the zero time"}
		}
	case []any:
		for i, one := range v {
			found = append(found, bad(fmt.Sprintf("%s[%d]", path, i), one)...)
		}
	case map[string]any:
		for key, one := range v {
			found = append(found, bad(path+"."+key, one)...)
		}
	}
	return found
}

// JSON output contains empty lists instead of null and no zero times; a value of 0 is
// written as 0.
func TestJSONHasNoNullsAndNoZeroTimes(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2)
	state := h.join("state")
	h.env = append(h.env, "NVMLSTUB_STATE="+state)
	commands := [][]string{
		{"gpus", "list", "--json"}, {"gpus", "report", "--json"}, {"gpus", "export", "-"}, {"status", "--json"},
		{"plan", "-k", "echo", "--json", "in.jsonl"}, {"plan", "-k", "echo", "--json", "empty.jsonl"},
		{"gpus", "watch", "--count", "1", "--json"},
	}
	if err := os.WriteFile(h.join("empty.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, state, before string }{
		{"idle", "* used 0\n* utilization 0", ""},
		{"full", "* used 81920", "gpus allocate a 1 --wait 0s"},
		{"leased", "* used 0", "gpus allocate a 1000"},
		{"released", "* used 0", "gpus deallocate a"},
		{"lost", "1 handle lost", ""},
		{"MIG", "1 mig 0", ""},
	} {
		name := test.name
		if err := os.WriteFile(state, []byte(test.state+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if test.before != "" {
			_ = h.command(strings.Fields(test.before)...).Run()
		}
		for _, args := range commands {
			text := h.gpurun(args...)
			text = text[:strings.LastIndexAny(text, "}]")+1]
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				t.Fatalf("%s: %v: %v\n%s", name, args, err, text)
			}
			for _, problem := range bad(filepath.Join(args...), value) {
				t.Errorf("%s: %s", name, problem)
			}
			if args[0] != "plan" && strings.Contains(text, `"memory_bytes": 85899345920`) && !strings.Contains(text, `"memory_free_bytes"`) {
				t.Errorf("%s: %v: memory_free_bytes is missing", name, args)
			}
		}
	}
}
