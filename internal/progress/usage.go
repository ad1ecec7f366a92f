package progress

import (
	"maps"
	"slices"
	"strings"
)

// usage writes what the kernels have counted: requests and tokens first. Truncated answers
// are a mistake more often than not.
func (p *page) usage() {
	rest := maps.Clone(p.Usage)
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
	if p.TokenRate > 0 {
		parts = append(parts, shortCount(int64(p.TokenRate))+" tokens/s")
	}
	if len(parts) > 0 {
		p.line("%s", strings.Join(parts, ", "))
	}
	if truncated > 0 {
		p.line("%s cut off at a limit of tokens; raise max_tokens", plural(truncated, "answer"))
	}
}
