package worker

import (
	"encoding/json"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/gpurun/gpurun/internal/jsonline"
)

func TestCostOf(t *testing.T) {
	for value, want := range map[string]int{
		``: 0, `null`: 0, `true`: 0, `false`: 0,
		`""`: 0, `"abc"`: 3, `"é"`: 2, `"\u00e9"`: 2, `"a\n\"b\""`: 5, `"\ud83d\ude00"`: 4,
		`0`: 0, `17`: 17, `-17`: 0, `2.9`: 2, `1e3`: 1000, `-1e400`: 0, `1e400`: maxCost, `99999999999999999999`: maxCost,
		`[]`: 2, `[1,2,3]`: 7, `{"a":1}`: 7,
	} {
		if got := costOf([]byte(value)); got != want {
			t.Errorf("costOf(%s) = %d, want %d", value, got, want)
		}
	}
}

// FuzzCostOf compares with encoding/json, for a member found as the reader finds it.
func FuzzCostOf(f *testing.F) {
	for _, line := range []string{
		`{"text":"abc"}`, `{"text":1,"text":"\u00e9\ud800"}`, `{"\u0074ext":-0.5e-7}`, `{"text":[1, 2]}`, `{"text":123456789012}`, `[1]`, `{}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if !json.Valid(line) || !utf8.Valid(line) {
			t.Skip()
		}
		var info jsonline.Info
		if err := jsonline.Want("text").Scan(line, &info); err != nil {
			t.Fatal(err)
		}
		got := costOf(line[info.Spans[0].ValueStart:info.Spans[0].ValueEnd])
		var members map[string]json.RawMessage
		_ = json.Unmarshal(line, &members)
		raw := members["text"]
		want := 0
		var value any
		if raw != nil && json.Unmarshal(raw, &value) != nil { // a number out of range
			value = math.Inf(1)
			if raw[0] == '-' {
				value = math.Inf(-1)
			}
		}
		switch v := value.(type) {
		case string:
			want = len(v)
		case float64:
			want = int(max(0, min(v, maxCost)))
		case []any, map[string]any:
			want = len(raw)
		}
		if got != want {
			t.Fatalf("cost of %s in %q = %d, want %d", raw, line, got, want)
		}
	})
}
