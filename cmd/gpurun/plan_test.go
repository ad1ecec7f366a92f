package main

import (
	"testing"

	"github.com/spf13/pflag"
)

// plan accepts every flag of run with the same meaning, so that users can replace run with
// plan to see what a command would do.
func TestPlanTakesEveryFlagOfRun(t *testing.T) {
	t.Parallel()
	run, plan := newRun().Flags(), newPlan().Flags()
	run.VisitAll(func(f *pflag.Flag) {
		same := plan.Lookup(f.Name)
		switch {
		case same == nil:
			t.Errorf("plan has no --%s", f.Name)
		case same.DefValue != f.DefValue || same.Value.Type() != f.Value.Type() || same.Shorthand != f.Shorthand || same.NoOptDefVal != f.NoOptDefVal:
			t.Errorf("--%s: plan has %+v, run %+v", f.Name, same, f)
		}
	})
	plan.VisitAll(func(f *pflag.Flag) {
		if run.Lookup(f.Name) == nil && f.Name != "json" && f.Name != "print" {
			t.Errorf("--%s is not a flag of run", f.Name)
		}
	})
}
