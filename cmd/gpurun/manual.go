package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/docs"
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/internal/nearest"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

const manualHelp = `Show a page of the manual of this version, or one of its sections, in Markdown. Without
arguments, list the pages. The examples are part of the manual: --copy writes the files of one
to a folder.

  gpurun manual
  gpurun manual failures | less
  gpurun manual llm#batch-files
  gpurun manual examples                       # list them
  gpurun manual examples/etl                   # its README
  gpurun manual examples/etl/clean.py          # one of its files
  gpurun manual examples/etl --copy my-etl     # all of them`

func newManual() *cobra.Command {
	var o struct{ Folder string }
	return newCommand(&cobra.Command{
		Use:   "manual [PAGE[#SECTION]]",
		Short: "Show a page of the manual",
		Long:  manualHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("copy") {
				return copyExample(strings.Join(args, ""), o.Folder)
			}
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
	}, &o, spec.Setting{Name: "copy", Field: "Folder", Value: "FOLDER", Help: "copy the files of an example to this FOLDER, which must be empty or not exist"})
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
	for _, name := range append(manualNames(), "examples") {
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
	if example, isExample := exampleName(page); isExample {
		return exampleFile(example)
	}
	page = strings.TrimSuffix(strings.TrimPrefix(page, "docs/"), ".md")
	data, err := docs.Pages.ReadFile(page + ".md")
	if err != nil {
		return "", fault.NoPage.New("the manual has no page %q%s", page, nearest.Hint(page, manualNames(), 3, "; gpurun manual lists them"))
	}
	text := remarks.ReplaceAllString(string(data), "")
	if !isSection {
		return text, nil
	}
	text, names := manualSection(text, section)
	if text == "" {
		return "", fault.NoPage.New("page %s of the manual has no section %q; its sections are %s", page, section, strings.Join(names, ", "))
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
var notInAnchors = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^\pL\pN _-]`) })

// anchorOf returns the anchor of a heading, as GitHub and the site make it.
func anchorOf(heading string) string {
	name := notInAnchors().ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(name, " ", "-")
}
