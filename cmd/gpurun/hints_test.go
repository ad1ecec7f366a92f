package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
)

// codes reads the codes that package fault defines.
func codes(t *testing.T) map[fault.Code]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/fault/code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[fault.Code]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all[fault.Code(text)] = true
		return true
	})
	return all
}

func TestEveryCodeHasAHint(t *testing.T) {
	all := codes(t)
	if len(all) < 10 {
		t.Fatalf("%d codes", len(all))
	}
	for code := range all {
		if hints[code] == "" {
			t.Errorf("%q has no hint", code)
		}
	}
	for code := range hints {
		if !all[code] {
			t.Errorf("there is a hint for %q, but no such code", code)
		}
	}
}

// Every flag in a hint exists.
func TestHintsNameFlags(t *testing.T) {
	known := make(map[string]bool)
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			add(sub)
		}
		for _, line := range strings.Fields(cmd.LocalFlags().FlagUsages()) {
			known[strings.Trim(line, ",")] = true
		}
	}
	add(newRoot())
	for code := range hints {
		for _, flag := range regexp.MustCompile(`--?[a-z][a-z-]*`).FindAllString(hint(code, "gpus"), -1) {
			if strings.HasPrefix(flag, "--") && !known[flag] {
				t.Errorf("the hint for %q names %s, which no command has", code, flag)
			}
		}
	}
}

func TestHints(t *testing.T) {
	inner := fault.New(fault.Conflict, "it changed").WithCode(fault.Changed, "kernel")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none":         {errors.New("no"), "no"},
		"no code":      {fault.New(fault.Usage, "no"), "no"},
		"unknown code": {fault.New(fault.Usage, "no").WithCode("from-the-future", "x"), "no"},
		"setting":      {fault.New(fault.Usage, "limit must not be negative").Set("limit"), "limit must not be negative (--limit)"},
		"value":        {fault.New(fault.Usage, "no kernel").WithCode(fault.NoKernel, "100%s"), "no kernel (-k 100%s)"},
		"nothing may change": {fault.New(fault.Conflict, "it changed").WithCode(fault.Changed, ""),
			"it changed; undo that and run the same command again to resume, or pass --fresh to start over"},
		"inherited": {fault.New(fault.Conflict, "resume: %w", inner),
			"resume: it changed; undo that and run the same command again to resume, or pass --fresh to start over, or --accept-changes kernel to keep what is done and resume"},
		"wrapped": {fmt.Errorf("run: %w", fault.New(fault.Usage, "it exists").WithCode(fault.Exists, "")), "run: it exists; --force replaces it"},
	} {
		err := withHint(withHint(test.err))
		if err.Error() != test.want {
			t.Errorf("%s: %q, want %q", name, err, test.want)
		}
		if fault.KindOf(err) != fault.KindOf(test.err) {
			t.Errorf("%s: kind %s", name, fault.KindOf(err))
		}
	}
	if withHint(nil) != nil {
		t.Error("a hint for no error")
	}
}

// Events are shown with hints; the job's own values stay unchanged.
func TestHintsOfEvents(t *testing.T) {
	lost := fault.New(fault.Timeout, "too slow").Set("timeout")
	var got []orchestrator.Event
	show := showHints(func(e orchestrator.Event) { got = append(got, e) })
	show(orchestrator.Notice{Text: "finished", Code: fault.Finished})
	show(orchestrator.WorkerLost{Fault: lost})
	show(orchestrator.ChunkGivenUp{Fault: lost})
	show(orchestrator.WorkerLost{})
	show(orchestrator.Paused{})
	if len(got) != 5 || got[0].(orchestrator.Notice).Text != "finished; --force runs it again" ||
		got[1].(orchestrator.WorkerLost).Fault.Message != "too slow (--timeout)" ||
		got[2].(orchestrator.ChunkGivenUp).Fault.Message != "too slow (--timeout)" || lost.Message != "too slow" {
		t.Errorf("%+v, %+v", got, lost)
	}
}
