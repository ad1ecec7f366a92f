package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/docs"
	"github.com/gpurun/gpurun/internal/nearest"
)

const manualHelp = `Show a page of the manual of this version, or one of its sections, in Markdown. Without
arguments, list the pages.

  gpurun manual
  gpurun manual failures | less
  gpurun manual llm#batch-files`

func newManual() *cobra.Command {
	return &cobra.Command{
		Use:   "manual [PAGE[#SECTION]]",
		Short: "Show a page of the manual",
		Long:  manualHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listManual(os.Stdout)
			}
			text, err := manualPage(args[0])
			if err != nil {
				return err
			}
			_, err = io.WriteString(os.Stdout, text)
			return err
		},
	}
}

// manualNames returns the names of the pages.
func manualNames() (names []string) {
	for _, pattern := range []string{"*.md", "reference/*.md"} {
		paths, _ := fs.Glob(docs.Pages, pattern) // the patterns are valid
		for _, path := range paths {
			names = append(names, strings.TrimSuffix(path, ".md"))
		}
	}
	return names
}

func listManual(w io.Writer) error {
	for _, name := range manualNames() {
		text, err := manualPage(name)
		if err != nil {
			return err
		}
		title, _, _ := strings.Cut(text[strings.Index(text, "# ")+2:], "\n")
		if _, err := fmt.Fprintf(w, "%-24s %s\n", name, title); err != nil {
			return err
		}
	}
	return nil
}

// manualPage returns a page by its name, or a section of it: failures, llm#batch-files.
func manualPage(name string) (string, error) {
	page, section, isSection := strings.Cut(name, "#")
	page = strings.TrimSuffix(strings.TrimPrefix(page, "docs/"), ".md")
	data, err := docs.Pages.ReadFile(page + ".md")
	if err != nil {
		if near := nearest.Of(page, manualNames(), 3); near != "" {
			return "", usagef("the manual has no page %q; did you mean %s?", page, near)
		}
		return "", usagef("the manual has no page %q; gpurun manual lists them", page)
	}
	text := remarks.ReplaceAllString(string(data), "")
	if !isSection {
		return text, nil
	}
	text, names := manualSection(text, section)
	if text == "" {
		return "", usagef("page %s of the manual has no section %q; its sections are %s", page, section, strings.Join(names, ", "))
	}
	return text, nil
}

// remarks are what the Markdown of a page has for tests of the manual.
var remarks = regexp.MustCompile(`(?s)<!--.*?-->\n*`)

// manualSection returns the section of a page with an anchor, "" if there is none, and the
// anchors of the page.
func manualSection(page, anchor string) (text string, names []string) {
	begin, depth, fenced := -1, 0, false
	lines := strings.SplitAfter(page, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		level := len(line) - len(strings.TrimLeft(line, "#"))
		if fenced || level == 0 {
			continue
		}
		if begin >= 0 && level <= depth {
			return strings.Join(lines[begin:i], ""), names
		}
		name := anchorOf(line[level:])
		if begin < 0 && name == anchor {
			begin, depth = i, level
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if begin < 0 {
		return "", names
	}
	return strings.Join(lines[begin:], ""), names
}

// notInAnchors are the characters of a heading that its anchor lacks.
var notInAnchors = regexp.MustCompile(`[^\pL\pN _-]`)

// anchorOf returns the anchor of a heading, as GitHub and the site make it.
func anchorOf(heading string) string {
	name := notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(name, " ", "-")
}
