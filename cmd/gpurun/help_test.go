package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var helpExample = regexp.MustCompile(`(?m)^  (?:.* \| )?(?:GPURUN_\w+=\S+ )?gpurun ([^|#\n]*(?:\\\n[^|#\n]*)?)`)

// TestHelpExamples: every command's help has an example, and the commands and flags of all
// examples exist.
func TestHelpExamples(t *testing.T) {
	root := newRoot()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		examples := helpExample.FindAllStringSubmatch(cmd.Long, -1)
		if len(examples) == 0 && cmd.Runnable() && cmd.IsAvailableCommand() {
			t.Errorf("%s --help has no example", cmd.CommandPath())
		}
		for _, example := range examples {
			words, _, _ := strings.Cut(example[1], " -- ")
			found, _, err := root.Find(strings.Fields(words))
			if err != nil || found == root {
				t.Errorf("%s --help: gpurun %s: %v", cmd.CommandPath(), example[1], err)
				continue
			}
			for _, flag := range regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`).FindAllStringSubmatch(regexp.MustCompile(`'[^']*'`).ReplaceAllString(words, "''"), -1) {
				if found.Flags().Lookup(flag[1]) == nil && found.InheritedFlags().Lookup(flag[1]) == nil {
					t.Errorf("%s --help: %s has no flag --%s", cmd.CommandPath(), found.CommandPath(), flag[1])
				}
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}
