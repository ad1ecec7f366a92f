package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/explain"
	"github.com/gpurun/gpurun/internal/fault"
)

// userMessages collects the messages that users can see, as the code writes them: … stands
// for what differs. The values are the files that have them.
func userMessages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	add := func(text, path string) {
		if text = strings.TrimSpace(readable(text)); strings.Trim(text, "… :;,()%") != "" && !slices.Contains(unseen, text) {
			all[text] = path
		}
	}
	walkSource(t, ".go", quietFolders, func(path, source string) error {
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if text, ok := messageOf(call, filepath.Dir(path)); ok {
					add(text, path)
				}
			}
			return true
		})
		return nil
	})
	for _, folder := range []string{"plugins/python/runner", "python/gpurun"} {
		names, err := filepath.Glob(filepath.Join("../..", folder, "*.py"))
		if err != nil || len(names) < 5 {
			t.Fatalf("%s: %q, %v", folder, names, err)
		}
		for _, name := range names {
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range pythonMessages(string(source)) {
				add(text, filepath.Join(folder, filepath.Base(name)))
			}
		}
	}
	return all
}

// quietFolders have no messages of the program.
var quietFolders = []string{
	"bench", "examples", "web/node_modules", "deploy", "plugins/kerneltest", "python", "scripts",
	"gpu/gputest", "chunk/chunktest", "internal/disktest", "internal/proctest", "internal/cluster/slurmtest", "plugins/openai/openaitest", "internal/arch",
}

// unseen are errors that no user sees: the code that gets them acts on them.
var unseen = []string{
	"silent", "given back", "given up", "different", "enough failures", "no event within the timeout", "a line over the limit",
	"time limit reached", "some records failed", "the message says how to resume", "different bytes", "not the failed record",
}

// formatters are functions of gpurun that make a message, with the position of its format.
// The folder is "" for functions of other packages, too.
var formatters = map[string]struct {
	at     int
	folder string
}{
	"fmt.Errorf": {0, ""}, "errors.New": {0, ""}, "fault.New": {1, ""},
	"plugins.Rejected": {0, ""}, "plugins.RetryAfter": {1, ""}, "plugins.TryLater": {1, ""},
	"usagef": {0, "cmd/gpurun"}, "failed": {0, "worker/fetch"}, "misplaced": {0, "worker/fetch"}, "usage": {0, "gpu/lease"},
	"c.reject": {0, "chunk/input/csv"}, "w.damaged": {0, "chunk/amend"}, "t.changed": {0, "chunk/amend"}, "r.breach": {0, "plugins"}, "r.miscount": {0, "plugins"},
	"bad": {0, "plugins/openai"}, "p.blame": {1, "internal/jobfile"}, "fail": {2, "internal/server"}, "p.damaged": {0, "internal/cluster"},
	"corrupt": {1, "chunk/commit"},
}

// notMessages have a format, but do not make a failure's message.
var notMessages = []string{"recommend", "logf", "warnf", "add", "one", "fail", "unusable", "Rejected", "RetryAfter", "TryLater", "Failf", "New"}

// messageOf returns the format of a call that makes a message.
func messageOf(call *ast.CallExpr, folder string) (string, bool) {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		if from, ok := f.X.(*ast.Ident); ok {
			name = from.Name + "." + f.Sel.Name
		}
	}
	f, known := formatters[name]
	if !known || f.folder != "" && f.folder != folder || len(call.Args) <= f.at {
		return "", false
	}
	return literal(call.Args[f.at])
}

// walkSource passes the files of the repository with this extension.
func walkSource(t *testing.T, extension string, without []string, pass func(path, source string) error) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		if entry != nil && entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." || slices.Contains(without, name)) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, extension) {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return pass(name, string(source))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFormatters: a function that makes messages is in the table, so that no message
// escapes it.
func TestFormatters(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^(?:func (?:\(\w+ \*?\w+\) )?|\t+)(\w+)(?: := func)?\([^)\n]*\bformat string, args \.\.\.any\)`)
	walkSource(t, ".go", quietFolders, func(path, source string) error {
		for _, match := range declared.FindAllStringSubmatch(source, -1) {
			known := slices.Contains(notMessages, match[1])
			for name, f := range formatters {
				known = known || f.folder == filepath.Dir(path) && strings.TrimPrefix(filepath.Ext("x."+name), ".") == match[1]
			}
			if !known && !strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s: %s makes messages: name it in formatters or notMessages", path, match[1])
			}
		}
		return nil
	})
}

// literal is the value of a string literal, or of several that are joined.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, okLeft := literal(e.X)
		right, okRight := literal(e.Y)
		if !okLeft {
			left = "…"
		}
		if !okRight {
			right = "…"
		}
		return left + right, okLeft || okRight
	}
	return "", false
}

var (
	pythonRaise  = regexp.MustCompile(`\braise [\w.]+\(\s*`)
	pythonString = regexp.MustCompile(`^f?("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*`)
)

// pythonMessages returns the messages of the exceptions that Python source raises.
func pythonMessages(source string) (all []string) {
	for _, at := range pythonRaise.FindAllStringIndex(source, -1) {
		rest, text := source[at[1]:], ""
		for {
			part := pythonString.FindStringSubmatch(rest)
			if part == nil {
				break
			}
			text += strings.NewReplacer(`\"`, `"`, `\'`, `'`).Replace(part[1][1 : len(part[1])-1])
			rest = rest[len(part[0]):]
		}
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

var verb = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`)

// readable replaces the verbs of a format.
func readable(format string) string {
	return strings.ReplaceAll(verb.ReplaceAllString(strings.ReplaceAll(format, "%%", "\x00"), "…"), "\x00", "%")
}

// TestMessages: every message of the code has an entry with its cause and fix, and every
// entry explains a message.
func TestMessages(t *testing.T) {
	messages := userMessages(t)
	if len(messages) < 700 {
		t.Errorf("only %d messages", len(messages))
	}
	used, missing := make(map[string]bool), 0
	for _, text := range slices.Sorted(maps.Keys(messages)) {
		entry, pattern, ok := explain.Covering(text)
		if !ok {
			missing++
			t.Errorf("%s: no file of internal/explain/messages explains: %s", messages[text], text)
			continue
		}
		used[pattern] = true
		filled := "gpurun: " + strings.ReplaceAll(text, "…", "x1")
		found := explain.Find(filled)
		found = found[:min(len(found), mostExplanations)]
		if len(strings.ReplaceAll(text, "…", "")) >= explain.Least && !slices.Contains(titles(found), entry.Title) {
			t.Errorf("gpurun explain %q finds %q, not %q", filled, titles(found), entry.Title)
		}
	}
	if missing > 0 {
		t.Logf("%d messages have no entry: add each to the entry whose cause and fix it shares, or write one", missing)
	}
	for _, area := range explain.Areas() {
		for _, entry := range area.Entries {
			for _, pattern := range entry.Messages {
				if !used[pattern] {
					t.Errorf("%s: %s: no message of the code has the pattern %q: correct it, or move it to others if a library writes it", area.Title, entry.Title, pattern)
				}
			}
		}
	}
}

func titles(entries []explain.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Title)
	}
	return all
}

// referMessages lists the messages with their causes and fixes, by subject.
func referMessages(t *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Messages\n\n" +
		"Every message of gpurun with its cause and what to do about it; `…` stands for what differs. Paste a\n" +
		"message, or a part of it, into the search of this site, or pass it to\n" +
		"[`gpurun explain`](commands.md#gpurun-explain), which needs no network. What `gpurun` adds to a message\n" +
		"after a `;` is explained under [advice](../troubleshooting.md#advice), exit statuses under\n" +
		"[exit statuses](../troubleshooting.md#exit-statuses). Messages may change between versions.\n")
	covered := make(map[string][]string) // by title
	for text := range userMessages(t) {
		if entry, _, ok := explain.Covering(text); ok {
			covered[entry.Title] = append(covered[entry.Title], text)
		}
	}
	for _, area := range explain.Areas() {
		fmt.Fprintf(b, "\n## %s\n\nMore: [%s](../%s).\n", area.Title, area.Page, pageLink(area.Page))
		for _, entry := range area.Entries {
			fmt.Fprintf(b, "\n### %s\n\n", entry.Title)
			texts := append(covered[entry.Title], entry.Others...)
			slices.Sort(texts)
			for _, text := range slices.Compact(texts) {
				fmt.Fprintf(b, "- %s\n", codeSpan(text))
			}
			fmt.Fprintf(b, "\n**Cause.** %s\n\n**Fix.** %s", entry.Cause, entry.Fix)
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

// codeSpan shows a text verbatim.
func codeSpan(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

// faultNames are the codes and kinds of package fault by their Go names.
func faultNames(t *testing.T) (map[string]fault.Code, map[string]fault.Kind) {
	t.Helper()
	codes, kinds := make(map[string]fault.Code), make(map[string]fault.Kind)
	for _, name := range []string{"code.go", "fault.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), "../../internal/fault/"+name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || len(spec.Values) != 1 {
				return true
			}
			value, isLiteral := spec.Values[0].(*ast.BasicLit)
			switch kind, _ := spec.Type.(*ast.Ident); {
			case kind == nil || !isLiteral:
			case kind.Name == "Code":
				text, _ := strconv.Unquote(value.Value)
				codes[spec.Names[0].Name] = fault.Code(text)
			case kind.Name == "Kind":
				number, _ := strconv.Atoi(value.Value)
				kinds[spec.Names[0].Name] = fault.Kind(number)
			}
			return true
		})
	}
	if len(codes) < 10 || len(kinds) < 10 {
		t.Fatalf("%d codes, %d kinds", len(codes), len(kinds))
	}
	return codes, kinds
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

// TestTroubleshooting: the page has a section for every exit status, every kind of failure
// and every code.
func TestTroubleshooting(t *testing.T) {
	headings := troubleshooting(t)
	for _, match := range regexp.MustCompile(`(?m)^  (\d+) `).FindAllStringSubmatch(exitHelp, -1) {
		if match[1] != "0" && !headings["exit-status-"+match[1]] {
			t.Errorf("no section Exit status %s", match[1])
		}
	}
	codes, kinds := faultNames(t)
	for _, code := range codes {
		if !headings[string(code)] {
			t.Errorf("no section %s", code)
		}
	}
	for _, kind := range kinds {
		if !headings["kind-"+kind.String()] {
			t.Errorf("no section Kind: %s", kind)
		}
	}
}
