package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/explain"
	"github.com/gpurun/gpurun/internal/fault"
)

// referMessages lists the codes with their causes and fixes, by subject.
func referMessages(_ *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Messages\n\n" +
		"Every message of gpurun ends with a code in brackets. This page has the cause of each and what to do\n" +
		"about it, as [`gpurun explain CODE`](commands.md#gpurun-explain) shows without a network. Codes are stable; the\n" +
		"words of a message may change between versions. See also [exit statuses](../troubleshooting.md#exit-statuses).\n")
	for _, area := range explain.Areas() {
		fmt.Fprintf(b, "\n## %s\n\nMore: [%s](../%s).\n", area.Title, area.Page, pageLink(area.Page))
		for _, entry := range area.Entries {
			fmt.Fprintf(b, "\n### `%s`\n\n%s.\n\n**Cause.** %s\n\n**Fix.** %s", entry.Code, entry.Title, entry.Cause, entry.Fix)
			if entry.Page != area.Page {
				fmt.Fprintf(b, " See [%s](../%s).", strings.SplitN(entry.Page, "#", 2)[0], pageLink(entry.Page))
			}
			b.WriteByte('\n')
		}
	}
}

// pageLink is the file of a page of the manual, with its anchor.
func pageLink(page string) string {
	name, anchor, found := strings.Cut(page, "#")
	if found {
		return name + ".md#" + anchor
	}
	return name + ".md"
}

// troubleshooting returns the anchors of the page.
func troubleshooting(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	return anchors(string(page))
}

// TestTroubleshooting: the page has a section for every exit status and every kind of failure.
func TestTroubleshooting(t *testing.T) {
	headings := troubleshooting(t)
	for _, match := range regexp.MustCompile(`(?m)^  (\d+) `).FindAllStringSubmatch(exitHelp, -1) {
		if match[1] != "0" && !headings["exit-status-"+match[1]] {
			t.Errorf("no section Exit status %s", match[1])
		}
	}
	for kind := fault.Unknown; kind.Known(); kind++ {
		if !headings["kind-"+kind.String()] {
			t.Errorf("no section Kind: %s", kind)
		}
	}
}
