package orchestrator

import (
	"strings"
	"testing"
)

// TestSampleHasValidRecordsOnly: a retry whose failed records are not JSON is no mistake in the
// kernel's configuration.
func TestSampleHasValidRecordsOnly(t *testing.T) {
	s := sampleMembers(strings.NewReader("{\"id\":\"\xff\"}\nnot JSON\n5\n{\"_error\":\"earlier\"}\n"))
	if s.records != 0 || s.lacks("text") != nil {
		t.Errorf("%+v: %v", s, s.lacks("text"))
	}
	if s = sampleMembers(strings.NewReader("{\"id\":\"\xff\"}\n{\"id\":1}\n")); s.records != 1 || s.lacks("text") == nil {
		t.Errorf("%+v", s)
	}
}
