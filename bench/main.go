// Command bench compares gpurun with peers and limits, alternating between them in one
// run, and prints one table of ratios. docs/internals/measurements.md
// explains each line, and docs/performance.md has figures.
//
//	make bench            everything; takes a few minutes
//	make bench QUICK=1    small sizes, to check that it works; the figures mean little
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// bench is one run of the benchmark.
type bench struct {
	gpurun, sleep string // the programs
	dir           string // for data
	rounds        int
	quick         bool
	rows          []row
}

func main() {
	if settings := os.Getenv(bareVariable); settings != "" {
		if err := runBare(settings); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	b := &bench{}
	flag.StringVar(&b.gpurun, "gpurun", "bin/gpurun", "the program to measure")
	flag.StringVar(&b.sleep, "kernel", "bin/bench-sleep", "the kernel of package bench/sleep")
	flag.StringVar(&b.dir, "dir", "", "folder for data; default: a new folder in the working directory")
	flag.IntVar(&b.rounds, "rounds", 5, "how often to run each, alternating")
	flag.BoolVar(&b.quick, "quick", false, "use small sizes, to check that it works")
	only := flag.String("only", "", "run only measurements whose name matches this regular expression")
	out := flag.String("json", "", "also write the table as JSON to this file")
	flag.Parse()
	if err := b.run(*only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(only, out string) error {
	for _, path := range []*string{&b.gpurun, &b.sleep} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("%w; run make bench to build it", err)
		}
		*path = absolute
	}
	dir, err := os.MkdirTemp(b.dir, "bench-data-")
	if b.dir == "" {
		dir, err = os.MkdirTemp(".", "bench-data-")
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if b.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var failed error
	for _, m := range []struct {
		name string
		run  func() error
	}{
		{"scan", b.scan}, {"plane", b.plane}, {"start", b.start}, {"echo", b.echo}, {"encoded", b.encoded}, {"columns", b.columns}, {"tables", b.tables}, {"python", b.python}, {"raising", b.raising}, {"memory", b.memory},
		{"one", b.oneWorker}, {"eight", b.eightDevices}, {"many", b.manyDevices},
		{"grouping", b.grouping}, {"async", b.async}, {"llm", b.llm},
		{"compressed", b.compressed},
		{"defaults", b.defaults},
		{"fetch", b.fetch}, {"bytes", b.bytes},
	} {
		if !wanted.MatchString(m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring: %s …\n", m.name)
		if err := m.run(); err != nil { // the others are worth their time
			fmt.Fprintf(os.Stderr, "NOT MEASURED: %s: %v\n", m.name, err)
			failed = fmt.Errorf("not everything was measured")
		}
	}
	return cmp.Or(b.print(out), failed)
}

// surroundings describes the machine and the versions.
func (b *bench) surroundings() string {
	return fmt.Sprintf("%d cores, %s/%s, %s; gpurun %s; %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), firstWord(b.gpurun, "version"), strings.TrimSpace(firstLineOf("parallel", "--version")))
}

func firstWord(program string, args ...string) string {
	words := strings.Fields(firstLineOf(program, args...))
	if len(words) == 0 {
		return "?"
	}
	return words[len(words)-1]
}

func firstLineOf(program string, args ...string) string {
	out, _ := exec.Command(program, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
