package main

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A wrong value of any flag is refused without the name of a Go function or type.
func TestWrongFlagValuesAreExplained(t *testing.T) {
	golang := regexp.MustCompile(`strconv|Parse[A-Z]|time:|int64|%!|syntax|Go `)
	number := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range []string{"x", "", "-", "99999999999999999999999"} {
				err := cmd.Flags().Set(f.Name, value)
				if err == nil {
					continue
				}
				number++
				if text := cmd.FlagErrorFunc()(cmd, err).Error(); golang.MatchString(text) {
					t.Errorf("%s --%s %q: %s", cmd.CommandPath(), f.Name, value, text)
				}
			}
		})
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(newRoot())
	if number < 100 {
		t.Errorf("only %d values were refused", number)
	}
}
