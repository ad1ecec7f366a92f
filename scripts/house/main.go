// Command house measures the structure of this module: its size, its types, and how many
// conditions ask which mode a job has. It prints figures and judges nothing.
//
//	go run ./scripts/house [-top 20] [-checks]
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	top := flag.Int("top", 20, "how many `types` to list")
	checks := flag.Bool("checks", false, "list every mode check with its place")
	flag.Parse()
	if err := run(*top, *checks); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(top int, listChecks bool) error {
	packages, err := load()
	if err != nil {
		return err
	}
	checks := findChecks(packages)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	printPackages(out, packages, checks)
	printTypes(out, packages, top)
	printModes(out, checks, listChecks)
	return out.Flush()
}

func printPackages(out *tabwriter.Writer, packages []*pkg, checks []check) {
	fmt.Fprintf(out, "tokens\tlines\tfiles\tchecks\t  package\n")
	perPackage := map[*pkg]int{}
	for _, c := range checks {
		perPackage[c.in]++
	}
	bySize := slices.Clone(packages)
	slices.SortStableFunc(bySize, func(a, b *pkg) int { return cmp.Compare(b.tokens, a.tokens) })
	var tokens, lines, files int
	for _, p := range bySize {
		isOver := p.lines > maxLines || p.count > maxFilesOfPackage
		fmt.Fprintf(out, "%d\t%d\t%d\t%d\t  %s%s\n", p.tokens, p.lines, p.count, perPackage[p], p.name, reason(p.name, isOver))
		tokens, lines, files = tokens+p.tokens, lines+p.lines, files+p.count
	}
	fmt.Fprintf(out, "%d\t%d\t%d\t%d\t  in %d packages\n\n", tokens, lines, files, len(checks), len(packages))
}

func printTypes(out *tabwriter.Writer, packages []*pkg, top int) {
	all := measureTypes(packages)
	slices.SortStableFunc(all, func(a, b typeSize) int {
		return cmp.Or(cmp.Compare(b.methods, a.methods), cmp.Compare(b.files, a.files))
	})
	over := 0
	fmt.Fprintf(out, "methods\tfiles\tfields\t  type\n")
	for i, t := range all {
		isOver := t.methods > maxMethods || t.files > maxFiles
		if i < top || isOver {
			fmt.Fprintf(out, "%d\t%d\t%d\t  %s%s\n", t.methods, t.files, t.fields, t.name, reason(t.name, isOver))
		}
		if isOver {
			over++
		}
	}
	fmt.Fprintf(out, "%d\t\t\t  of %d types have over %d methods or %d files\n\n", over, len(all), maxMethods, maxFiles)
}

func printModes(out *tabwriter.Writer, checks []check, list bool) {
	perMode := map[string]int{}
	for _, c := range checks {
		perMode[c.mode]++
	}
	fmt.Fprintf(out, "checks\t  mode\n")
	for _, m := range modeNames() {
		fmt.Fprintf(out, "%d\t  %s\n", perMode[m], m)
	}
	fmt.Fprintf(out, "%d\t  in all\n", len(checks))
	if !list {
		return
	}
	fmt.Fprintln(out)
	for _, c := range checks {
		fmt.Fprintf(out, "%s\t  %s\t\n", c.mode, strings.TrimSpace(c.place))
	}
}
