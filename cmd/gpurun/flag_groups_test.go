package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestEveryFlagOfRunHasAHeading(t *testing.T) {
	cmd := newRun()
	known := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known++
		if groupOf(f.Name) == "" {
			t.Errorf("--%s has no heading: add it to flagGroups", f.Name)
		}
	})
	for _, group := range flagGroups {
		for _, name := range group.names {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s lists --%s, which run does not have", group.title, name)
			}
			known--
		}
	}
	if known != 0 {
		t.Errorf("%d flags too many or too few: some flag has two headings", known)
	}
	if help := groupedFlags(cmd); strings.Contains(help, "Other:") || !strings.HasPrefix(help, "Kernel:\n  -k, --kernel") {
		t.Errorf("the help begins with %.100s", help)
	}
}
