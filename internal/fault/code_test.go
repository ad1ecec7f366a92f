package fault

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestCodes: a code brings its kind, and survives the wire and wrapping; the innermost counts.
func TestCodes(t *testing.T) {
	e := TooSmall.New("limit must not be negative").Set("limit")
	data, err := json.Marshal(e)
	if want := `{"kind":"usage","message":"limit must not be negative","code":"too-small","value":"limit"}`; err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	var back Error
	if err := json.Unmarshal(data, &back); err != nil || back.Code != TooSmall || back.Value != "limit" {
		t.Errorf("%+v, %v", back, err)
	}
	for name, outer := range map[string]*Error{
		"wrapped":             New(Conflict, "run: %w", e),
		"wrapped with a code": JobDamaged.New("run: %w", e),
	} {
		if outer.Kind != Conflict || outer.Code != TooSmall || outer.Value != "limit" {
			t.Errorf("%s: %+v", name, outer)
		}
	}
	if outer := JobDamaged.Of(Storage, "run: %w", io.EOF); outer.Kind != Storage || outer.Code != JobDamaged {
		t.Errorf("of an error without a code: %+v", outer)
	}
	if other := e.WithCode(BadValue); other.Code != BadValue || other.Value != "limit" || e.Code != TooSmall {
		t.Errorf("another code: %+v, %+v", other, e)
	}
	if quoted := New(Usage, "run: %v", e); quoted.Code != "" {
		t.Errorf("quoted: %+v", quoted)
	}
	if long := TooSmall.New("no").Set(strings.Repeat("x", MaxMessage+1)).Bounded(); long.Code != "" || long.Value != "" {
		t.Errorf("a value of %d bytes", len(long.Value))
	}
	if Code("from-the-future").Known() || !Bug.Known() || len(Codes()) < 100 {
		t.Errorf("%d codes", len(Codes()))
	}
}
