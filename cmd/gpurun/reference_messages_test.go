package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/internal/fault"
)

// userMessage is a message that users can see, as the code writes it.
type userMessage struct {
	kind   fault.Kind
	code   fault.Code
	text   string // … for what differs
	folder string
}

// userMessages collects the messages of classified failures and usage errors from the code.
func userMessages(t *testing.T) (all []userMessage) {
	t.Helper()
	codeNames, kindNames := faultNames(t)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		if entry != nil && entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." || slices.Contains(quietFolders, name)) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pending := make(map[ast.Node]fault.Code) // codes of calls inside the one just seen
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if inner, code := coded(call, codeNames); inner != nil {
				pending[inner] = code
			}
			kind, format, ok := messageOf(call, kindNames)
			if ok {
				code := pending[call]
				all = append(all, userMessage{kind, code, readable(format), filepath.Dir(name)})
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// byCause is the kind of a message that has that of its cause.
const byCause fault.Kind = 255

// topics are the pages about what the packages do, for readers of their messages.
var topics = map[string]string{
	"cmd/gpurun": "running.md", "internal/jobfile": "job-file.md", "internal/nearest": "job-file.md",
	"chunk": "inputs.md", "chunk/input": "inputs.md", "chunk/input/expand": "inputs.md", "chunk/input/decode": "inputs.md",
	"chunk/input/csv": "formats.md", "chunk/input/parquet": "formats.md", "chunk/input/format": "formats.md",
	"chunk/encode": "outputs.md", "chunk/encode/parquet": "outputs.md", "chunk/encode/npy": "outputs.md", "chunk/record": "failures.md",
	"chunk/commit": "journal-format.md", "chunk/amend": "failures.md", "orchestrator/retry": "failures.md",
	"orchestrator": "failures.md", "worker": "failures.md", "worker/early": "kernels.md", "internal/judge": "failures.md",
	"worker/fetch": "fetch.md", "plugins": "kernels.md", "plugins/exec": "kernels.md", "plugins/chain": "python-kernels.md",
	"plugins/python": "python-kernels.md", "plugins/openai": "llm.md", "plugins/serve": "llm.md", "plugins/minhash": "minhash.md", "plugins/echo": "running.md",
	"gpu": "gpus.md", "gpu/lease": "gpus.md", "gpu/lease/claim": "gpus.md", "internal/host": "gpus.md",
	"internal/jobs": "gpus.md", "internal/server": "api.md", "internal/httpserve": "api.md", "internal/view": "dashboard.md",
	"internal/progress": "running.md", "internal/metrics": "api.md", "internal/proc": "failures.md", "internal/owned": "failures.md",
	"internal/files": "failures.md", "internal/wire": "failures.md", "internal/shmem": "failures.md", "internal/fault": "failures.md",
	"internal/resources": "performance.md", "internal/shell": "kernels.md", "internal/cluster": "cluster.md",
}

// topic links to the page about a package.
func topic(t *testing.T, folder string) string {
	t.Helper()
	page := topics[folder]
	for page == "" && strings.Contains(folder, "/") { // that of the package above
		folder = filepath.Dir(folder)
		page = topics[folder]
	}
	if page == "" {
		t.Errorf("%s has messages: name the page about it in topics", folder)
	}
	return fmt.Sprintf("[%s](../%s)", strings.TrimSuffix(page, ".md"), page)
}

// quietFolders have no messages of the program.
var quietFolders = []string{"bench", "examples", "web/node_modules", "deploy", "plugins/kerneltest", "python", "gpu/gputest", "chunk/chunktest", "internal/disktest", "internal/proctest"}

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

// coded returns the call to which a call of WithCode or Set gives a code.
func coded(call *ast.CallExpr, names map[string]fault.Code) (ast.Node, fault.Code) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil, ""
	}
	inner, ok := method.X.(*ast.CallExpr)
	switch {
	case !ok:
	case method.Sel.Name == "Set":
		return inner, fault.Setting
	case method.Sel.Name == "WithCode" && len(call.Args) == 2:
		if code, ok := call.Args[0].(*ast.SelectorExpr); ok {
			return inner, names[code.Sel.Name]
		}
	}
	return nil, ""
}

// messageOf returns the kind and the format of a call of fault.New or usagef.
func messageOf(call *ast.CallExpr, kinds map[string]fault.Kind) (fault.Kind, string, bool) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if f.Name == "usagef" && len(call.Args) > 0 {
			text, ok := literal(call.Args[0])
			return fault.Usage, text, ok
		}
	case *ast.SelectorExpr:
		from, ok := f.X.(*ast.Ident)
		if !ok || from.Name != "fault" || f.Sel.Name != "New" || len(call.Args) < 2 {
			return 0, "", false
		}
		kind := byCause
		if constant, ok := call.Args[0].(*ast.SelectorExpr); ok && fmt.Sprint(constant.X) == "fault" {
			kind = kinds[constant.Sel.Name]
		}
		text, ok := literal(call.Args[1])
		return kind, text, ok
	}
	return 0, "", false
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

var verb = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`)

// readable replaces the verbs of a format.
func readable(format string) string {
	return strings.ReplaceAll(verb.ReplaceAllString(strings.ReplaceAll(format, "%%", "\x00"), "…"), "\x00", "%")
}

// referMessages lists the messages by what they mean for the job.
func referMessages(t *testing.T, b *bytes.Buffer) {
	b.WriteString(generated + "# Messages\n\n" +
		"The messages of gpurun by kind of failure; `…` stands for what differs. A message says what failed,\n" +
		"on what and why, and mostly what to do. [Troubleshooting](../troubleshooting.md) has a section for each\n" +
		"kind and for each advice that gpurun adds; the page about the subject has the details. Messages may change\n" +
		"between versions.\n")
	all := userMessages(t)
	if len(all) < 300 {
		t.Errorf("only %d messages", len(all))
	}
	headings := troubleshooting(t)
	kinds := []fault.Kind{byCause}
	for kind := fault.Kind(0); kind.Known(); kind++ {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		var rows []string
		for _, m := range all {
			if m.kind != kind || strings.Trim(m.text, "… :") == "" {
				continue
			}
			advice := ""
			if m.code != "" {
				advice = fmt.Sprintf("[%s](../troubleshooting.md#%s)", m.code, m.code)
			}
			row := fmt.Sprintf("| %s | %s | %s |\n", strings.ReplaceAll(cell(m.text), "`", "'"), topic(t, m.folder), advice)
			if !slices.Contains(rows, row) {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		slices.Sort(rows)
		const head = "| message | page | advice |\n|---|---|---|\n"
		if kind == byCause {
			fmt.Fprintf(b, "\n## Kinds that depend on the cause\n\n%s%s", head, strings.Join(rows, ""))
			continue
		}
		if !headings["kind-"+kind.String()] {
			t.Errorf("docs/troubleshooting.md has no section Kind: %s", kind)
		}
		fmt.Fprintf(b, "\n## %s\n\n[What to do](../troubleshooting.md#kind-%s).\n\n%s%s", kind, kind, head, strings.Join(rows, ""))
	}
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
// and every code, so that each message has a cause and a fix.
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
