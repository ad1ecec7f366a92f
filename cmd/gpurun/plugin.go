package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/progress"
	"github.com/gpurun/gpurun/internal/wire"
	"github.com/gpurun/gpurun/plugins/builtin"
	"github.com/gpurun/gpurun/plugins/resolve"
)

func newPlugin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "List, create and check kernels",
		Long: `List, create and check kernels.

  gpurun plugin new python my-kernel
  gpurun plugin check my-kernel/kernel.py my-kernel/sample.jsonl
  gpurun plugin list`,
	}
	cmd.AddCommand(newPluginList(), newPluginNew(), newPluginCheck())
	return cmd
}

// resolver returns a Resolver that finds kernels as a worker does.
func resolver() (resolve.Resolver, error) {
	self, err := os.Executable()
	if err != nil {
		return resolve.Resolver{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return resolve.Resolver{}, err
	}
	return resolve.Resolver{
		Builtins: slices.Sorted(maps.Keys(builtin.Kernels())), Self: self, SelfArgs: []string{wire.KernelArgument},
		SearchPath: os.Getenv("GPURUN_PLUGIN_PATH"), Dir: dir,
	}, nil
}

// builtinAbout holds the display name and a description of each built-in kernel.
var builtinAbout = map[string][2]string{
	"chain":   {"A → B", "a chain of kernels: --step A --step B"},
	"echo":    {"echo", "return every record unchanged"},
	"exec":    {"exec:COMMAND", "any program that reads and writes lines"},
	"openai":  {"openai:URL", "a model server or service with OpenAI's API"},
	"minhash": {"minhash", "MinHash signatures of text, compatible with datasketch"},
	"serve":   {"serve:COMMAND", "a model server that gpurun starts for each worker"},
	"python":  {"FILE.py", "a Python function in your own environment"},
}

func newPluginList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the kernels that -k accepts by name",
		Long: `List the kernels that -k accepts by name: the built-in ones, and the programs and
Python files in the folders of $GPURUN_PLUGIN_PATH. Give other kernels by path:
./kernel, embed.py.

  gpurun plugin list
  GPURUN_PLUGIN_PATH=~/kernels gpurun plugin list`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := resolver()
			if err != nil {
				return err
			}
			table := progress.NewTable(os.Stdout)
			for _, name := range r.Builtins {
				about, known := builtinAbout[name]
				if !known {
					about = [2]string{name, ""}
				}
				fmt.Fprintf(table, "%s\tbuilt in\t%s\n", about[0], about[1])
			}
			listInstalled(table, r.SearchPath)
			return table.Flush()
		},
	}
}

// listInstalled lists the kernels in the search path.
func listInstalled(table *tabwriter.Writer, searchPath string) {
	for _, dir := range filepath.SplitList(searchPath) {
		kernels, err := installed(dir)
		if err != nil {
			fmt.Fprintf(table, "%s\tcannot be read\t%v\n", dir, err)
		}
		for _, k := range kernels {
			fmt.Fprintf(table, "%s\t%s\t%s\n", k.name, k.kind, filepath.Join(dir, k.name))
		}
	}
}

// installedKernel is a file that -k accepts by name.
type installedKernel struct{ name, kind string }

// installed returns the kernels in a folder.
func installed(dir string) (kernels []installedKernel, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(dir, entry.Name()))
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(entry.Name(), ".py"):
			kernels = append(kernels, installedKernel{entry.Name(), "Python file"})
		case info.Mode()&0o111 != 0:
			kernels = append(kernels, installedKernel{entry.Name(), "program"})
		}
	}
	return kernels, err
}
