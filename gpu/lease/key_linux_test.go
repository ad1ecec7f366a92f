package lease

import (
	"strings"
	"testing"
)

// A lease by index, as earlier versions wrote it, does not tell which GPU it holds: it
// counts against every GPU.
func TestLeaseByIndexExcludesEveryGPU(t *testing.T) {
	t.Parallel()
	old := `{"id":"1","name":"old","gpu":"index-3","index":3,"label":"GPU 3","exclusive":true,"owned":false,"pid":7,"user":"ann","host":"h","created":"2026-01-02T03:04:05Z"}`
	f := open(t)
	write("index-3~1.lease", old)(t, f)
	for _, edit := range []func(*Request){nil, func(r *Request) { r.Memory = gib }} {
		_, err := f.Acquire(t.Context(), ask(2, edit))
		if err == nil || !strings.Contains(err.Error(), "GPU 0 may be held by old") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := f.Deallocate(t.Context(), "old", ""); err != nil {
		t.Fatal(err)
	}
	acquire(t, f, ask(2, nil))
}

// A lease of part of an unknown GPU leaves the rest of each GPU available.
func TestShareByIndexCountsOnEveryGPU(t *testing.T) {
	t.Parallel()
	old := given("old", 0, 20*gib)
	old.GPU = "index-0"
	for _, a := range Count(cards(2), []Lease{old}, Limits{}) {
		if a.Leased != 20*gib || a.Free != 60*gib {
			t.Errorf("%s: %+v", a.Label, a)
		}
	}
}
