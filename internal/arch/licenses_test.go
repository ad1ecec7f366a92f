package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

// TestLicenses: every module whose code is in the program has a license that allows it.
func TestLicenses(t *testing.T) {
	format := `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`
	out, err := exec.Command("go", "list", "-deps", "-f", format, module+"/cmd/gpurun").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		path, folder, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found || seen[path] {
			continue
		}
		seen[path] = true
		if licenseIn(t, folder) == "" {
			t.Errorf("%s: no license file with a known, compatible license in %s", path, folder)
		}
	}
	if len(seen) < 10 {
		t.Errorf("found %d modules; want those of go-plugin, mpb and go-nvml at least", len(seen))
	}
}

func licenseIn(t *testing.T, folder string) string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.ToUpper(file.Name())
		if file.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "UNLICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for license, words := range licenses {
			if words.Match(text) {
				return license
			}
		}
	}
	return ""
}
