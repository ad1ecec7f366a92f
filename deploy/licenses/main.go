// Command licenses prints the licenses of all software that the gpurun program contains, for
// the packages: most of them require it.
//
//	go run ./deploy/licenses > THIRD_PARTY_LICENSES
//
// It fails if a license is unknown, or does not allow what gpurun's does.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// licenses are those that an Apache-2.0 program may contain, each by words that only its
// text has. MPL-2.0 covers files, and gpurun changes none of them.
var licenses = map[string]*regexp.Regexp{
	"Apache-2.0": regexp.MustCompile(`Apache License\s+Version 2\.0`),
	"MIT":        regexp.MustCompile(`Permission is hereby granted, free of charge, to any person obtaining`),
	"BSD":        regexp.MustCompile(`Redistribution and use in source and binary forms`),
	"ISC":        regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software`),
	"MPL-2.0":    regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`),
	"Unlicense":  regexp.MustCompile(`free and unencumbered software released into the public domain`),
}

//go:embed uplot.txt
var uplot []byte

// software is a part of the program that others wrote.
type software struct {
	name, version, license string
	texts                  [][]byte
}

func main() {
	all, err := list("github.com/gpurun/gpurun/cmd/gpurun")
	if err == nil {
		err = print(os.Stdout, all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licenses: "+err.Error())
		os.Exit(1)
	}
}

// list returns the software in a program: modules, Go itself, and what the page contains.
func list(program string) ([]software, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	format := `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	out, err := exec.Command("go", "list", "-deps", "-f", format, program).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	lines := slices.Compact(slices.Sorted(strings.Lines(string(out))))
	all := []software{{name: "uPlot", version: "1.6.32", license: "MIT", texts: [][]byte{uplot}}}
	var unknown []error
	for _, line := range append(lines, fmt.Sprintf("Go %s %s", runtime.Version(), strings.TrimSpace(string(root)))) {
		var one software
		var folder string
		if n, _ := fmt.Sscan(line, &one.name, &one.version, &folder); n < 3 {
			continue
		}
		if err := one.read(folder); err != nil {
			unknown = append(unknown, err)
		}
		all = append(all, one)
	}
	return all, errors.Join(unknown...)
}

// read reads the license files in a folder, and the notices that the licenses want repeated.
func (s *software) read(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := make(map[string]bool) // a file may contain several
	for _, file := range files {
		name := strings.ToUpper(file.Name())
		isLicense := strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "UNLICEN") || strings.HasPrefix(name, "COPYING")
		if file.IsDir() || !isLicense && name != "NOTICE" && name != "PATENTS" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return err
		}
		s.texts = append(s.texts, text)
		for license, words := range licenses {
			if isLicense && words.Match(text) {
				found[license] = true
			}
		}
	}
	s.license = strings.Join(slices.Sorted(maps.Keys(found)), ", ")
	if s.license == "" {
		return fmt.Errorf("%s: no license file with a known, compatible license in %s", s.name, folder)
	}
	return nil
}

func print(out io.Writer, all []software) error {
	var b bytes.Buffer
	b.WriteString("gpurun contains the following software.\n\n")
	for _, one := range all {
		fmt.Fprintf(&b, "%s %s (%s)\n", one.name, one.version, one.license)
	}
	for _, one := range all {
		fmt.Fprintf(&b, "\n%s\n%s %s\n\n", strings.Repeat("=", 80), one.name, one.version)
		for _, text := range one.texts {
			b.Write(bytes.TrimSpace(text))
			b.WriteString("\n\n")
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}
