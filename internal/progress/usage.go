package progress

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/orchestrator"
)

// writeUsage writes what the kernels have counted: requests and tokens first. Truncated answers
// are a mistake more often than not.
func writeUsage(w io.Writer, r orchestrator.Report) {
	rest := maps.Clone(r.Usage)
	if rest["prompt_tokens"]+rest["completion_tokens"] > 0 {
		delete(rest, "total_tokens")
	}
	truncated := rest["truncated"]
	delete(rest, "truncated")
	var parts []string
	add := func(name string) {
		if n := rest[name]; n > 0 {
			parts = append(parts, Count(n)+" "+strings.ReplaceAll(name, "_", " "))
		}
		delete(rest, name)
	}
	for _, name := range []string{"requests", "prompt_tokens", "completion_tokens", "total_tokens"} {
		add(name)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		add(name)
	}
	if r.TokenRate > 0 {
		parts = append(parts, shortCount(int64(r.TokenRate))+" tokens/s")
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  %s\n", strings.Join(parts, ", "))
	}
	if truncated > 0 {
		fmt.Fprintf(w, "  %s cut off at a limit of tokens; raise max_tokens\n", plural(truncated, "answer"))
	}
}
