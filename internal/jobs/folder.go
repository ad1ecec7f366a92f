package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// Variable is the environment variable that sets the only folder of jobs.
const Variable = "GPURUN_JOBS_DIR"

// folders lists where this user's jobs may be. A job is registered in the first usable
// one. A login session may have a folder that a cron job does not know of; hence the
// second.
func folders() []string {
	if dir := os.Getenv(Variable); dir != "" {
		return []string{dir}
	}
	id := strconv.Itoa(os.Getuid())
	var list []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, filepath.Join(dir, "gpurun", "jobs"))
	}
	if own := filepath.Join("/run/user", id, "gpurun", "jobs"); len(list) == 0 || list[0] != own {
		list = append(list, own)
	}
	return append(list, filepath.Join("/tmp", "gpurun-"+id, "jobs"))
}

// readable lists the folders that exist and can be trusted.
func readable() []string {
	return slices.DeleteFunc(folders(), func(dir string) bool { return checkFolder(dir) != nil })
}

// makeFolder creates a private folder and its parent, and checks that they are private.
func makeFolder(dir string) error {
	above := filepath.Dir(dir)
	for _, path := range []string{above, dir} {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return checkFolder(dir)
}

// checkFolder rejects a folder of jobs that is not private to this user. Unless the user
// named the folder, its parent is gpurun's too: /tmp/gpurun-1000.
func checkFolder(dir string) error {
	if os.Getenv(Variable) == "" {
		if err := checkPrivate(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return checkPrivate(dir)
}

// checkPrivate rejects a folder that another user may have created or can write to.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case ok && int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %o): chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// Folder returns the first usable folder of jobs, which only this user can read.
func Folder() (string, error) {
	var all []error
	for _, dir := range folders() {
		err := makeFolder(dir)
		if err == nil {
			return dir, nil
		}
		all = append(all, err)
	}
	return "", fault.SocketFolder.New("no usable folder for the job's socket: %w (set %s to choose one)", errors.Join(all...), Variable)
}
