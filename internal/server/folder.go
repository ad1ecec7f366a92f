package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/gpurun/gpurun/internal/fault"
)

// Variable names the folder of jobs, and no other is looked at.
const Variable = "GPURUN_JOBS_DIR"

// folders are where this user's jobs may be; a job is registered in the first that
// can be had. A login has a folder of its own that a cron job does not know of:
// hence the second.
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

// makeFolder makes a private folder, the one above it included, and checks that it
// is.
func makeFolder(dir string) error {
	above := filepath.Dir(dir)
	for _, path := range []string{above, dir} {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return checkFolder(dir)
}

// checkFolder refuses a folder of jobs that is not this user's alone. Of one that
// the user has not named, the folder above is gpurun's too: /tmp/gpurun-1000.
func checkFolder(dir string) error {
	if os.Getenv(Variable) == "" {
		if err := checkPrivate(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return checkPrivate(dir)
}

// checkPrivate refuses a folder that somebody else could have placed there, or can
// write to.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case ok && int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to other users (mode %o): chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// findFolder returns the first folder that can be had.
func findFolder() (string, error) {
	var all []error
	for _, dir := range folders() {
		err := makeFolder(dir)
		if err == nil {
			return dir, nil
		}
		all = append(all, err)
	}
	return "", fault.New(fault.Usage, "no folder for the job's socket: %w (%s names one)", errors.Join(all...), Variable)
}
