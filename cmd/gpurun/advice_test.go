package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/plugins/kerneltest"
)

// Users of the command line get flags instead of options, authors of Python kernels their
// own functions, and all others the text of the check.
func TestAdviceForUsers(t *testing.T) {
	for _, table := range []map[kerneltest.Advice]string{userAdvice, pythonAdvice} {
		for a, text := range table {
			if a.String() == "" || strings.Contains(text, "Options.") {
				t.Errorf("%q: %s", a, text)
			}
		}
	}
	check := func(python bool, a kerneltest.Advice) string {
		failure := &kerneltest.Failure{What: errors.New("it failed"), Advice: []kerneltest.Advice{a}, Detail: "a trace"}
		return advised(kerneltest.Outcome{Err: failure}, adviser(python)).Err.Error()
	}
	for _, test := range []struct {
		python bool
		advice kerneltest.Advice
		want   string
	}{
		{false, kerneltest.MoreTime, "pass --timeout.\na trace"},
		{true, kerneltest.MoreTime, "pass --timeout."},
		{false, kerneltest.CloseQuietly, "it is logged."},
		{true, kerneltest.CloseQuietly, "Check what close() raises."},
		{true, kerneltest.SmallerBatch, "batch_size in the file"},
		{true, kerneltest.CopyToKeep, kerneltest.CopyToKeep.String()},
	} {
		if got := check(test.python, test.advice); !strings.HasPrefix(got, "it failed.\n") || !strings.Contains(got, test.want) {
			t.Errorf("%s, Python %t: %s", test.advice, test.python, got)
		}
	}
	if passed := advised(kerneltest.Outcome{}, adviser(false)); passed.Err != nil {
		t.Error(passed.Err)
	}
}
