package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/gpu"
	"github.com/gpurun/gpurun/plugins"
)

// version is set by the Makefile from git; a plain go build uses the module version.
var version = ""

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show version and build information",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Print(versionLines()) },
	}
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
