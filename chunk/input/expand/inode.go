package expand

import (
	"os"
	"syscall"
)

// inodeOf returns what identifies a file under all of its names.
func inodeOf(info os.FileInfo) (device, inode uint64, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(stat.Dev), stat.Ino, true
}
