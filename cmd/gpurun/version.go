package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/internal/stdfd"
	"github.com/gpurun/gpurun/plugins/protocol"
)

// These are set by scripts/build.sh from git, because a build may lack the stamp of Go: it
// must not depend on the folder and the settings of the machine. A plain go build uses what
// Go knows.
var (
	version      = ""
	sourceCommit = ""
	sourceTime   = "" // RFC 3339, UTC
)

func newVersion() *cobra.Command {
	var o struct{ JSON bool }
	return newCommand(&cobra.Command{
		Use:   "version",
		Short: "Show version and build information",
		Long: `Show the version, the build and what this program was built without.

  gpurun version
  gpurun version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return result{buildOf(debug.ReadBuildInfo()), func(w io.Writer) { fmt.Fprint(w, versionLines()) }}.show(o.JSON)
		},
	}, &o, jsonSetting)
}

// buildFacts is what gpurun version --json shows.
type buildFacts struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"` // empty if it was built outside a repository
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified"` // the source differs from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Protocol int    `json:"kernel_protocol"`
	// Without lists what this build lacks.
	Without []string `json:"built_without"`
	// Settings has the flags and variables of go build.
	Settings map[string]string `json:"settings"`
}

// buildOf returns the facts of the running program.
func buildOf(info *debug.BuildInfo, known bool) buildFacts {
	facts := buildFacts{
		Version: versionText(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Protocol: protocol.Version, Without: lacking(), Settings: map[string]string{},
		Commit: sourceCommit, Time: sourceTime, Modified: strings.HasSuffix(version, "-dirty"),
	}
	if !known {
		return facts
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			facts.Commit = cmp.Or(facts.Commit, setting.Value)
		case "vcs.time":
			facts.Time = cmp.Or(facts.Time, setting.Value)
		case "vcs.modified":
			facts.Modified = facts.Modified || setting.Value == "true"
		case "vcs":
		default:
			facts.Settings[setting.Key] = setting.Value
		}
	}
	return facts
}

// lacking lists what this program was built without. All of it needs a C compiler.
func lacking() []string {
	lacks := []string{}
	for _, part := range []struct {
		name  string
		there bool
	}{
		{"nvml", gpu.BuiltWithNVML},           // GPUs: CPU devices only
		{"closed-descriptors", stdfd.Known},   // refusing data on a closed standard input or output
		{"address-space", checksAddressSpace}, // a message if ulimit -v is too low
	} {
		if !part.there {
			lacks = append(lacks, part.name)
		}
	}
	return lacks
}

func versionLines() string {
	nvml := "with NVML"
	if !gpu.BuiltWithNVML {
		nvml = "without NVML (no C compiler): CPU devices only"
	}
	return fmt.Sprintf("gpurun %s\n%s %s/%s, kernel protocol %d, %s\n",
		versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH, protocol.Version, nvml)
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
