package explain

import (
	_ "embed"
	"regexp"
	"strings"
)

// topicsText is the part of the manual that explains exit statuses and kinds of failure.
//
//go:embed topics.md
var topicsText string

// Topic returns what an exit status ("3") or a kind of failure ("oom") means.
func Topic(name string) (title, text string, ok bool) {
	name = strings.ToLower(strings.TrimSpace(name))
	for section := range strings.SplitSeq(topicsText, "### ") {
		title, text, _ := strings.Cut(section, "\n")
		if lower := strings.ToLower(title); name != "" && (lower == name || lower == "exit status "+name || lower == "kind: "+name) {
			return title, strings.TrimSpace(links.ReplaceAllString(text, "$1")), true
		}
	}
	return "", "", false
}

// links finds the links of a page, which a terminal does not show.
var links = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
