// Command wheel packs the gpurun program and the Python package into a wheel:
//
//	go run ./python/wheel -binary bin/gpurun -version v1.2.3 -out dist
//
// The platform tag follows from the program itself: its architecture, and the version of glibc
// that it needs, 2.28 or newer. Two runs with the same files give the same bytes.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

func main() {
	binary := flag.String("binary", "bin/gpurun", "the gpurun program, for Linux")
	version := flag.String("version", "", "the version, as git describe prints it")
	source := flag.String("source", "python", "the folder with the Python packages")
	third := flag.String("licenses", "", "a file with the licenses of what the program contains")
	newest := glibc{math.MaxInt, 0}
	flag.Func("glibc", "refuse a program that needs a newer glibc than this version", func(text string) (err error) {
		newest, err = parseGlibc(text)
		return err
	})
	out := flag.String("out", "dist", "the folder for the wheel")
	flag.Parse()
	path, err := build(*binary, newest, *version, *source, *third, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel: "+err.Error())
		os.Exit(1)
	}
	fmt.Println(path)
}

// build writes the wheel and returns its path.
func build(binary string, newest glibc, version, source, third, out string) (string, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	tag, err := platform(program, newest)
	if err != nil {
		return "", fmt.Errorf("%s: %w", binary, err)
	}
	w := &wheel{version: pythonVersion(version), tag: "py3-none-" + tag}
	for _, name := range []string{"gpurun", "gpurun_runner"} {
		if err := w.addPackage(source, name); err != nil {
			return "", err
		}
	}
	w.add(w.data()+"/scripts/gpurun", program, 0o755)
	licenses := []string{filepath.Join(source, "..", "LICENSE")}
	if third != "" {
		licenses = append(licenses, third)
	}
	if err := w.addMetadata(filepath.Join(source, "..", "README.md"), licenses); err != nil {
		return "", err
	}
	path := filepath.Join(out, w.name())
	if err := os.MkdirAll(out, 0o777); err != nil {
		return "", err
	}
	data, err := w.encode()
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, data, 0o666)
}
