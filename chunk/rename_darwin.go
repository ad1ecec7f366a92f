package chunk

import "golang.org/x/sys/unix"

// exchange lets two folders trade their names at once.
func exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }

// renameNew renames a file, and fails if something has the name.
func renameNew(from, to string) error { return unix.RenamexNp(from, to, unix.RENAME_EXCL) }
