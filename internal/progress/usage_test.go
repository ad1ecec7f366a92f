package progress

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/orchestrator"
)

// The summary names truncated answers on a line of their own, with what helps.
func TestUsage(t *testing.T) {
	var b strings.Builder
	(&page{w: &b, Report: orchestrator.Report{Usage: map[string]int64{"requests": 1200, "prompt_tokens": 5, "total_tokens": 7, "truncated": 3, "cached": 2}}}).usage()
	if want := "  1,200 requests, 5 prompt tokens, 2 cached\n  3 answers cut off at a limit of tokens; raise max_tokens\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
