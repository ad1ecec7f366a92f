package python

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// installedWarning returns a warning if a kernel that imports gpurun would get another version
// of it outside gpurun, for example in its own tests; "" otherwise. place is what the source's
// description says.
func installedWarning(place [2]string) string {
	folder, version := place[0], place[1]
	if folder == "" || sameRunner(folder) {
		return ""
	}
	if version != "" {
		version = " " + version
	}
	return fmt.Sprintf("the installed package gpurun-batch%s (%s) is not of the same version as this gpurun, which uses its own instead", version, filepath.Dir(folder))
}

// sameRunner reports whether a folder has the modules of this runner that kernels see.
func sameRunner(folder string) bool {
	for _, name := range []string{"api.py", "batch.py", "fields.py", "record.py"} {
		ours, err := sources.ReadFile("runner/" + name)
		theirs, theirErr := os.ReadFile(filepath.Join(folder, name))
		if err != nil || theirErr != nil || !bytes.Equal(ours, theirs) {
			return false
		}
	}
	return true
}
