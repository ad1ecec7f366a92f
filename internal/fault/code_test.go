package fault

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestCodes: a code survives the wire and wrapping; the outermost code counts.
func TestCodes(t *testing.T) {
	e := New(Usage, "limit must not be negative").Set("limit")
	data, err := json.Marshal(e)
	if want := `{"kind":"usage","message":"limit must not be negative","code":"setting","value":"limit"}`; err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	var back Error
	if err := json.Unmarshal(data, &back); err != nil || back.Code != Setting || back.Value != "limit" {
		t.Errorf("%+v, %v", back, err)
	}
	if outer := New(Usage, "run: %w", e); outer.Code != Setting || outer.Value != "limit" {
		t.Errorf("wrapped: %+v", outer)
	}
	if outer := New(Usage, "run: %w", e).WithCode(Exists, ""); outer.Code != Exists || outer.Value != "" || e.Code != Setting {
		t.Errorf("wrapped with another code: %+v, %+v", outer, e)
	}
	if quoted := New(Usage, "run: %v", e); quoted.Code != "" {
		t.Errorf("quoted: %+v", quoted)
	}
	if long := New(Usage, "no").Set(strings.Repeat("x", MaxMessage+1)).Bounded(); long.Code != "" || long.Value != "" {
		t.Errorf("a value of %d bytes", len(long.Value))
	}
}
