package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/plugins"
)

// version is set by the Makefile from git; a plain go build uses the module version.
var version = ""

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show version and build information",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(buildOf(debug.ReadBuildInfo()))
			}
			fmt.Print(versionLines())
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "show it as JSON, with the commit and the build settings")
	return cmd
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
	// Settings are those of go build.
	Settings map[string]string `json:"settings"`
}

// buildOf returns the facts of the running program.
func buildOf(info *debug.BuildInfo, known bool) buildFacts {
	facts := buildFacts{
		Version: versionText(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Protocol: plugins.ProtocolVersion, Without: []string{}, Settings: map[string]string{},
	}
	if !gpu.BuiltWithNVML {
		facts.Without = append(facts.Without, "nvml")
	}
	if !known {
		return facts
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			facts.Commit = setting.Value
		case "vcs.time":
			facts.Time = setting.Value
		case "vcs.modified":
			facts.Modified = setting.Value == "true"
		case "vcs":
		default:
			facts.Settings[setting.Key] = setting.Value
		}
	}
	return facts
}

func versionLines() string {
	nvml := "with NVML"
	if !gpu.BuiltWithNVML {
		nvml = "without NVML (no C compiler): CPU devices only"
	}
	return fmt.Sprintf("gpurun %s\n%s %s/%s, kernel protocol %d, %s\n",
		versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH, plugins.ProtocolVersion, nvml)
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
