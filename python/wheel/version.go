package main

import (
	"fmt"
	"regexp"
	"strings"
)

// described is what git describe prints: v1.2.3-4-gabcdef-dirty, or abcdef-dirty in a
// repository without tags.
var described = regexp.MustCompile(`^(?:(v\d+|v?\d+(?:\.\d+)+)(?:-(\d+)-g([0-9a-f]+))?|([0-9a-f]{4,40}))(-dirty)?$`)

// snapshot is the version of packages between releases: v0.0.0+gabcdef.
var snapshot = regexp.MustCompile(`^v(\d+\.\d+\.\d+\+g[0-9a-f]+)$`)

// pythonVersion turns a version from git into one that pip accepts and orders correctly:
// commits after a tag come after it, and a repository without tags is before everything.
func pythonVersion(version string) string {
	if match := snapshot.FindStringSubmatch(version); match != nil {
		return match[1]
	}
	match := described.FindStringSubmatch(version)
	if match == nil {
		return "0.dev0"
	}
	tag, commits, commit, untagged, dirty := match[1], match[2], match[3], match[4], match[5]
	tag = strings.TrimPrefix(tag, "v")
	public, local := tag, ""
	switch {
	case untagged != "":
		public, local = "0.dev0", "g"+untagged
	case commits != "":
		public, local = fmt.Sprintf("%s.post%s", tag, commits), "g"+commit
	}
	if dirty != "" {
		local += ".dirty"
		if local[0] == '.' {
			local = local[1:]
		}
	}
	if local != "" {
		return public + "+" + local
	}
	return public
}
