package template

import (
	"testing"
	"time"
)

// The guard of warm templates ends when it has no template, no child, and was not found lately.
func TestGuardEndsUnused(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if _, err := makeFolder(); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * unusedGuard)
	for name, test := range map[string]struct {
		g    *guard
		quit bool
	}{
		"unused":          {&guard{found: long}, true},
		"just found":      {&guard{found: time.Now()}, false},
		"a template":      {&guard{found: long, templates: map[string]*template{"key": {}}}, false},
		"a child remains": {&guard{found: long, children: map[string]int{"mark": 1}}, false},
	} {
		if quit := test.g.quit(); quit != test.quit || test.g.ended != test.quit {
			t.Errorf("%s: quit is %t", name, quit)
		}
	}
}

// A template that a request waits for is in use, and its time begins when it is no longer.
func TestTemplateInUse(t *testing.T) {
	used := &template{}
	g := newGuard(func(usage) {})
	g.templates["key"] = used
	if _, err := g.template(Request{Key: "key", Keep: time.Hour}, nil); err != nil || used.users != 1 || used.keep != time.Hour {
		t.Fatalf("%+v, %v", used, err)
	}
	g.expire(func(*template) bool { return true })
	if g.templates["key"] == nil {
		t.Fatal("a template in use was ended")
	}
	if g.release(used); used.users != 0 || time.Since(used.last) > time.Minute {
		t.Errorf("%+v", used)
	}
}
