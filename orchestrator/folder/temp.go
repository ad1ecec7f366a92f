package folder

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/gpurun/gpurun/internal/files"
)

const (
	tempPrefix = "gpurun-"
	shortTemp  = "/tmp"
	// maxTempPath is what remains of the system's 107 bytes for a socket path after
	// /gpurun-0123456789/plan-again/plugin-dir4294967295/plugin4294967295.
	maxTempPath = 40
)

// MakeTemp creates a folder whose path leaves room for a unix socket's name. short is
// a line for the user if the folder is not under $TMPDIR.
func MakeTemp(note func(string)) (path, short string, err error) {
	parent := os.TempDir()
	if len(parent) > maxTempPath {
		short = fmt.Sprintf("TMPDIR %s is too long for socket paths (%d characters, at most %d): creating sockets in %s",
			parent, len(parent), maxTempPath, shortTemp)
		parent = shortTemp
	}
	path = filepath.Join(parent, tempPrefix+rand.Text()[:10])
	note(path)
	switch err = os.Mkdir(path, 0o700); {
	case err != nil && short != "":
		err = fmt.Errorf("%w (%s); set TMPDIR to a folder with a shorter path", err, short)
	case err != nil:
		err = fmt.Errorf("%w; set TMPDIR to a writable folder", err)
	}
	return path, short, err
}

// tempName matches the names of socket folders: see MakeTemp.
var tempName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + tempPrefix + `[A-Z2-7]{10}$`) })

// removeTemp removes the folder that a killed holder left behind. It validates the
// path first, since that comes from a file.
func removeTemp(path string) {
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); dir != filepath.Clean(os.TempDir()) && dir != shortTemp || !tempName().MatchString(name) {
		return
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() && files.IsOwn(info) {
		_ = os.RemoveAll(path)
	}
}
