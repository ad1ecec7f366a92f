package commit

import "golang.org/x/sys/unix"

// exchange atomically swaps the names of two folders.
func exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
