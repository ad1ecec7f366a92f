// Package shmem is anonymous memory that processes share. A file stands for it, which a
// child process inherits. Linux only; elsewhere every function fails with
// errors.ErrUnsupported.
package shmem
