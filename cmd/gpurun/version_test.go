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

// TestBuildFactsFromScript: what scripts/build.sh passes takes precedence over Go's stamp.
func TestBuildFactsFromScript(t *testing.T) {
	before := [...]string{version, sourceCommit, sourceTime}
	defer func() { version, sourceCommit, sourceTime = before[0], before[1], before[2] }()
	version, sourceCommit, sourceTime = "v1.2.3-dirty", "def", "2026-05-06T07:08:09Z"
	for _, stamp := range []*debug.BuildInfo{{}, {Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}}} {
		facts := buildOf(stamp, true)
		if facts.Version != version || facts.Commit != "def" || facts.Time != sourceTime || !facts.Modified {
			t.Errorf("%+v", facts)
		}
	}
}
