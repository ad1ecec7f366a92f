package commit

import "golang.org/x/sys/unix"

// exchange atomically swaps the names of two folders.
func exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }

// renameNew renames a file and fails if the name is taken.
func renameNew(from, to string) error { return unix.RenamexNp(from, to, unix.RENAME_EXCL) }
