package files

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// localFileSystems are those that only processes under one kernel can write to, so that
// all of them see a lock. A file system that is not listed counts as a network file
// system.
var localFileSystems = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC, unix.REISERFS_SUPER_MAGIC,
	unix.NILFS_SUPER_MAGIC, unix.HUGETLBFS_MAGIC, unix.EXFAT_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
	0x3153464a, // JFS
	0x7366746e, // NTFS3
}

// IsLocal reports whether a file is on a local file system.
func IsLocal(file *os.File) bool {
	var stat unix.Statfs_t
	return unix.Fstatfs(int(file.Fd()), &stat) == nil && slices.Contains(localFileSystems, int64(uint32(stat.Type)))
}
