package orchestrator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/internal/fault"
)

// folder is where a job keeps what is its own: beside the output, or in the
// user's state folder where the output is a stream.
//
//	out.jsonl.gpurun/
//	  lock              held while the job runs
//	  parts/            finished segments that wait for their turn
//	  spool/            a streamed input
//	  output.partial    the output up to the first gap
//	  failures.jsonl    what is known of each failed record
//	  report.json
//	  logs/worker-0.log
type folder struct {
	path string
	lock *os.File
}

// openFolder makes and locks the job's folder, and clears it of what an earlier
// job of the same output left.
func openFolder(output string) (*folder, error) {
	path, err := folderPath(output)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fault.New(fault.Usage, "make job folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fault.New(fault.Usage, "make job folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "another gpurun is writing %s; wait for it, or name another output", output)
		}
		return nil, fault.New(fault.Conflict, "lock job folder: %w", err)
	}
	f := &folder{path: path, lock: lock}
	for _, name := range []string{"parts", "spool", "logs", "output.partial", "errors.partial", "failures.partial", "failures.jsonl", "report.json"} {
		if err := os.RemoveAll(f.join(name)); err != nil {
			f.close()
			return nil, fault.New(fault.Usage, "clear job folder: %w", err)
		}
	}
	for _, name := range []string{"parts", "logs"} {
		if err := os.Mkdir(f.join(name), 0o777); err != nil {
			f.close()
			return nil, fault.New(fault.Usage, "make job folder: %w", err)
		}
	}
	return f, nil
}

// folderPath is out.jsonl.gpurun for a file.
func folderPath(output string) (string, error) {
	if !isStream(output) {
		return absolute(output) + ".gpurun", nil
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		state = filepath.Join(home, ".local", "state")
	}
	name := fmt.Sprintf("%s-%d-%s", time.Now().UTC().Format("20060102-150405"), os.Getpid(), randomName()[:6])
	return filepath.Join(state, "gpurun", "jobs", name), nil
}

// isStream reports whether an output is written to as it comes, and has no folder
// beside it: standard output, a pipe, a device.
func isStream(output string) bool {
	if output == "-" || strings.HasPrefix(absolute(output), "/dev/") {
		return true
	}
	info, err := os.Stat(output)
	return err == nil && !info.Mode().IsRegular()
}

func (f *folder) join(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// finish removes what only a running job needs.
func (f *folder) finish() {
	_ = os.RemoveAll(f.join("parts"))
	_ = os.RemoveAll(f.join("spool"))
}

func (f *folder) close() { f.lock.Close() }
