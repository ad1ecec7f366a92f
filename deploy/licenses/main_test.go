package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLicenses: everything in the program has a license that allows it, and the packages
// repeat it.
func TestLicenses(t *testing.T) {
	all, err := list("github.com/gpurun/gpurun/cmd/gpurun")
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := print(&printed, all); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hashicorp/go-plugin", "(MPL-2.0)", "NVIDIA/go-nvml", "vbauerster/mpb", "Go go1.", "uPlot 1.6.32 (MIT)", "Copyright (c) 2022 Leon Sorokin"} {
		if !strings.Contains(printed.String(), text) {
			t.Errorf("%s is missing", text)
		}
	}
	if len(all) < 20 {
		t.Errorf("found %d pieces of software only", len(all))
	}
}

// TestUnknownLicense: software without a license, or with one that gpurun must not contain,
// is refused.
func TestUnknownLicense(t *testing.T) {
	for name, text := range map[string]string{"README": "Permission is hereby granted, free of charge, to any person obtaining", "LICENSE": "GNU GENERAL PUBLIC LICENSE Version 3"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := (&software{name: "other"}).read(dir); err == nil || !strings.Contains(err.Error(), "other: no license file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPageLicenses: what npm installs for the page has a license that allows it, and the
// version of uPlot, the only one that the page contains, is the one listed.
func TestPageLicenses(t *testing.T) {
	text, err := os.ReadFile("../../web/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name, one := range lock.Packages {
		if name != "" && licenses[one.License] == nil {
			t.Errorf("%s has the license %q", name, one.License)
		}
	}
	if version := lock.Packages["node_modules/uplot"].Version; version != "1.6.32" {
		t.Errorf("the page contains uPlot %s: change the version in main.go", version)
	}
}
