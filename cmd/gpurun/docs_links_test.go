package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anyFence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^<!--.*?-->$")
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	longFlag   = regexp.MustCompile(`(^|\s)--([a-z][a-z-]+)`)
)

// TestDocsLinks: every link to a file or a heading leads there.
func TestDocsLinks(t *testing.T) {
	pages := documents(t)
	for _, name := range []string{"ARCHITECTURE.md", "CHANGELOG.md"} {
		data, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, document{path: name, text: string(data)})
	}
	headings := make(map[string]map[string]bool)
	for _, page := range pages {
		for _, match := range docLink.FindAllStringSubmatch(anyFence.ReplaceAllString(page.text, ""), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := page.path
			if target != "" {
				path = filepath.Join(filepath.Dir(page.path), target)
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page.path, match[1])
				continue
			}
			if anchor != "" && headings[path] == nil {
				data, _ := os.ReadFile(filepath.Join("../..", path)) // a folder has no headings
				headings[path] = anchors(string(data))
			}
			if anchor != "" && !headings[path][anchor] {
				t.Errorf("%s: the link %s: no such heading", page.path, match[1])
			}
		}
	}
}

// anchors are the anchors of the headings of a page, as GitHub and the site make them.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, match := range docHeading.FindAllStringSubmatch(anyFence.ReplaceAllString(text, ""), -1) {
		name := anchorOf(match[1])
		for n, unique := 1, name; ; n++ {
			if !all[unique] {
				all[unique] = true
				break
			}
			unique = fmt.Sprintf("%s-%d", name, n)
		}
	}
	return all
}

// otherFlags are flags of other programs that the documentation mentions.
var otherFlags = []string{"pipe-part", "block", "unresolved-symbols", "strict", "help", "version", "gres", "gpurun", "partition", "account", "time", "cpus-per-gpu", "requeue", "for", "uds", "host", "max-num-seqs", "fast", "long", "mem", "port", "gpu-reset", "array", "api-key"}

// TestDocsFlags: every flag that the text mentions exists.
func TestDocsFlags(t *testing.T) {
	flags := make(map[string]bool)
	for _, name := range otherFlags {
		flags[name] = true
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	for _, page := range documents(t) {
		for _, code := range inlineCode.FindAllStringSubmatch(anyFence.ReplaceAllString(page.text, ""), -1) {
			for _, match := range longFlag.FindAllStringSubmatch(code[1], -1) {
				if !flags[match[2]] {
					t.Errorf("%s: there is no flag --%s (`%s`)", page.path, match[2], code[1])
				}
			}
		}
	}
}
