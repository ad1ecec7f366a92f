package main

import (
	"reflect"
	"runtime/debug"
	"testing"

	"github.com/gpurun/gpurun/gpu"
)

func TestBuildFacts(t *testing.T) {
	facts := buildOf(&debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "-trimpath", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}}, true)
	if facts.Commit != "abc" || facts.Time != "2026-01-02T03:04:05Z" || !facts.Modified {
		t.Errorf("%+v", facts)
	}
	if want := map[string]string{"-trimpath": "true", "CGO_ENABLED": "0"}; !reflect.DeepEqual(facts.Settings, want) {
		t.Errorf("%v", facts.Settings)
	}
	if lacks := len(facts.Without) > 0; lacks == gpu.BuiltWithNVML {
		t.Errorf("built with NVML: %v, without %q", gpu.BuiltWithNVML, facts.Without)
	}
	if facts := buildOf(nil, false); facts.Commit != "" || facts.Version == "" || facts.Settings == nil {
		t.Errorf("%+v", facts)
	}
}
