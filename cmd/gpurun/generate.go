package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/fault"
)

const generateHelp = `Write the man pages and the shell completions of this program below DIR, which stands
for PREFIX/share:

  man/man1, man/man7
  bash-completion/completions/gpurun
  zsh/site-functions/_gpurun
  fish/vendor_completions.d/gpurun.fish

make install and the packages call it. Existing files of these names are overwritten.`

// newGenerate is for packagers, so the help of gpurun does not list it.
func newGenerate() *cobra.Command {
	return &cobra.Command{
		Use:    "generate DIR",
		Short:  "Write man pages and shell completions",
		Long:   generateHelp,
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return fault.SideFile.Wrap(generate(cmd.Root(), args[0]))
		},
	}
}

// generate writes what describes the commands of root below a folder.
func generate(root *cobra.Command, share string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, completion := range []struct {
		path  string
		write func(path string) error
	}{
		{"bash-completion/completions/gpurun", func(path string) error { return root.GenBashCompletionFileV2(path, true) }},
		{"zsh/site-functions/_gpurun", root.GenZshCompletionFile},
		{"fish/vendor_completions.d/gpurun.fish", func(path string) error { return root.GenFishCompletionFile(path, true) }},
	} {
		path := filepath.Join(share, completion.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return fmt.Errorf("write completions: %w", err)
		}
		if err := completion.write(path); err != nil {
			return fmt.Errorf("write completions: %w", err)
		}
	}
	for _, page := range manPages(root) {
		path := filepath.Join(share, "man", "man"+page.section, page.name+"."+page.section)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return fmt.Errorf("write man pages: %w", err)
		}
		if err := os.WriteFile(path, page.text, 0o666); err != nil {
			return fmt.Errorf("write man pages: %w", err)
		}
	}
	return nil
}
