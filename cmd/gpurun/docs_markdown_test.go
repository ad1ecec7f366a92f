package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// document is a page of Markdown whose fences are run.
type document struct {
	path  string // relative to the repository
	text  string
	steps []docStep
}

// docStep is a fence, or a hidden script.
type docStep struct {
	line  int
	lang  string
	text  string
	notes docNotes
}

// docNotes are what comments before a fence say about it. They are the only exceptions: a
// fence without one must run.
//
//	<!-- test: skip REASON -->            it cannot run here, only its syntax is checked
//	<!-- test: exit 3 -->                 its last command ends with this status
//	<!-- test: file NAME -->              it is written to this file
//	<!-- test: keep -->                   outputs of earlier commands stay, to be resumed
//	<!-- test: output REASON -->          what a console prints differs from run to run
//	<!-- test: needs python:numpy -->     from here on, the page needs this, else it is skipped
//	<!-- test: wrap …SNIPPET… -->         code around a fragment, on lines of its own
//	<!-- test: run … -->                  a script that readers do not see, on lines of its own
type docNotes struct {
	skip, file, wrap, output string
	exit                     int
	keep                     bool
	needs                    []string
}

// documents reads the pages for users and developers.
func documents(t *testing.T) []document {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/*/*.md", "examples/README.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	var pages []document
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel("../..", path)
		steps, err := parseDocument(string(data))
		if err != nil {
			t.Errorf("%s:%v", name, err)
		}
		pages = append(pages, document{path: name, text: string(data), steps: steps})
	}
	if len(pages) < 15 {
		t.Fatalf("only %d pages", len(pages))
	}
	return pages
}

var (
	docComment = regexp.MustCompile(`^<!-- test: (\w+) ?(.*?) ?-->$`)
	docOpening = regexp.MustCompile(`^<!-- test: (run|wrap)$`)
	docFence   = regexp.MustCompile("^( *)(```+)\\s*(\\S*)\\s*$")
	docList    = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
)

// parseDocument returns the fences of a page with their notes. An error starts with a line
// number.
func parseDocument(text string) (steps []docStep, err error) {
	lines := strings.Split(text, "\n")
	var notes docNotes
	pending, inList, blank := 0, false, true
	until := func(from int, end string) (string, int) { // the lines up to one that is end
		at := from
		for at < len(lines) && strings.TrimRight(strings.TrimLeft(lines[at], " "), " ") != end {
			at++
		}
		return strings.Join(lines[from:min(at, len(lines))], "\n"), at
	}
	for i := 0; i < len(lines); i++ {
		line, number := lines[i], i+1
		comment, opening, fence := docComment.FindStringSubmatch(line), docOpening.FindStringSubmatch(line), docFence.FindStringSubmatch(line)
		switch {
		case fence != nil:
			if fence[3] == "" {
				return steps, fmt.Errorf("%d: the fence names no language", number)
			}
			body, end := until(i+1, fence[2])
			if end == len(lines) {
				return steps, fmt.Errorf("%d: the fence does not end", number)
			}
			body = regexp.MustCompile("(?m)^"+fence[1]).ReplaceAllString(body, "")
			steps = append(steps, docStep{line: number, lang: fence[3], text: body + "\n", notes: notes})
			notes, pending, i = docNotes{}, 0, end
		case opening != nil:
			body, end := until(i+1, "-->")
			if opening[1] == "run" {
				steps = append(steps, docStep{line: number, lang: "sh", text: body + "\n", notes: docNotes{keep: true, needs: notes.needs}})
				notes.needs = nil
				if reflect.ValueOf(notes).IsZero() {
					pending = 0
				}
			} else {
				notes.wrap, pending = body, number
			}
			i = end
		case comment != nil:
			if err := notes.add(comment[1], comment[2]); err != nil {
				return steps, fmt.Errorf("%d: %w", number, err)
			}
			pending = number
		case strings.HasPrefix(line, "<!-- test"):
			return steps, fmt.Errorf("%d: unknown note %q", number, line)
		case strings.HasPrefix(line, "    ") && blank && !inList:
			return steps, fmt.Errorf("%d: code without a fence is not tested: use ``` and a language", number)
		case line != "" && pending > 0:
			return steps, fmt.Errorf("%d: no fence follows the note", pending)
		case docList.MatchString(line):
			inList = true
		case line != "" && !strings.HasPrefix(line, " "):
			inList = false
		}
		blank = strings.TrimSpace(line) == ""
	}
	return steps, nil
}

func (n *docNotes) add(word, argument string) (err error) {
	switch word {
	case "skip":
		n.skip = argument
	case "output":
		n.output = argument
	case "file":
		n.file = argument
	case "keep":
		n.keep = true
	case "exit":
		n.exit, err = strconv.Atoi(argument)
	case "needs":
		n.needs = append(n.needs, strings.Fields(argument)...)
	default:
		return fmt.Errorf("unknown note %q", word)
	}
	if (word == "skip" || word == "output") && len(strings.Fields(argument)) < 3 {
		return fmt.Errorf("%s: give the reason", word)
	}
	return err
}

// TestParseDocument checks that nothing escapes the tests.
func TestParseDocument(t *testing.T) {
	for text, want := range map[string]string{
		"a\n\n    gpurun run\n":               "3: code without a fence",
		"```\ngpurun run\n```\n":              "1: the fence names no language",
		"```sh\ngpurun run\n":                 "1: the fence does not end",
		"<!-- test: skip -->\n```sh\n```\n":   "1: skip: give the reason",
		"<!-- test: jump -->\n```sh\n```\n":   "1: unknown note",
		"<!-- test: exit 3 -->\ntext\n":       "1: no fence follows",
		"- a\n\n    more of the item\n":       "",
		"<!-- test: exit 3 -->\n```sh\n```":   "",
		"1. a\n   ```sh\n   gpurun\n   ```\n": "",
	} {
		steps, err := parseDocument(text)
		if got := fmt.Sprint(err); want != "" && !strings.HasPrefix(got, want) || want == "" && err != nil {
			t.Errorf("%q: %s, %v", text, got, steps)
		}
	}
	steps, err := parseDocument("<!-- test: run\ntouch a\n-->\n\n<!-- test: exit 3 -->\n\n1. a\n")
	if err == nil {
		t.Errorf("a note before text: %v", steps)
	}
	steps, err = parseDocument("<!-- test: run\ntouch a\n-->\n- b\n  ```sh\n  ls\n    a\n  ```\n")
	if err != nil || len(steps) != 2 || steps[0].text != "touch a\n" || steps[1].text != "ls\n  a\n" {
		t.Errorf("%v, %v", steps, err)
	}
}

// TestRecipesAreTested: the page has ten recipes, TestDocs runs all of their code, and what a job
// wrote is checked.
func TestRecipesAreTested(t *testing.T) {
	data, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	recipes := strings.Split(text, "\n## ")[1:]
	if words := len(strings.Fields(text)); len(recipes) != 10 || words > 1500 {
		t.Errorf("%d recipes, %d words", len(recipes), words)
	}
	for _, recipe := range recipes {
		title, _, _ := strings.Cut(recipe, "\n")
		steps, err := parseDocument(recipe)
		runs := 0
		for _, step := range steps {
			if step.notes.skip != "" {
				t.Errorf("%s: not tested: %s", title, step.notes.skip)
			}
			if strings.Contains(step.text, "gpurun") && !strings.Contains(step.text, "cat >") {
				runs++
			}
		}
		if err != nil || runs == 0 || !strings.Contains(recipe, "More:") {
			t.Errorf("%s: %v, %d commands of gpurun", title, err, runs)
		}
	}
}
