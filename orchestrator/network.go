package orchestrator

import (
	"os"
	"path/filepath"
	"runtime"
)

// cacheVariables name the folders where frameworks keep models.
var cacheVariables = []string{"HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "XDG_CACHE_HOME"}

// staggers reports whether the kernels are opened one before the others.
func (p *prepared) staggers() bool {
	if p.config.Devices.Stagger != StaggerAuto {
		return p.config.Devices.Stagger == StaggerOn
	}
	if len(p.plan.Slots) < 2 {
		return false
	}
	places := append([]string{p.interpreter}, p.files...)
	for _, name := range cacheVariables {
		places = append(places, os.Getenv(name))
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, ".cache"))
	}
	for _, path := range places {
		if isRemote(path) {
			return true
		}
	}
	return false
}

// isRemote reports whether a file exists and is on a network file system.
func isRemote(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return runtime.GOOS == "linux" && !isLocal(file)
}
