package orchestrator

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator/source"
)

// TestSampleHasValidRecordsOnly: a retry whose failed records are not JSON is no mistake in the
// kernel's configuration.
func TestSampleHasValidRecordsOnly(t *testing.T) {
	sampleOf := func(lines string) (s sample) {
		if err := source.EachLine(strings.NewReader(lines), sampledBytes, s.add); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := sampleOf("{\"id\":\"\xff\"}\nnot JSON\n5\n{\"_error\":\"earlier\"}\n")
	if s.records != 0 || s.lacks("text") != nil {
		t.Errorf("%+v: %v", s, s.lacks("text"))
	}
	if s = sampleOf("{\"id\":\"\xff\"}\n{\"id\":1}\n"); s.records != 1 || s.lacks("text") == nil {
		t.Errorf("%+v", s)
	}
}
