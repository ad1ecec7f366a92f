// Package lease records who holds which GPU, and how much of its memory, on one
// host and across users, without a daemon.
//
//	/run/gpurun/
//	  lock                            held while a request is decided
//	  GPU-4f…~a91b03c2d4e5.lease      one lease of one GPU
//	  history-1000.jsonl              leases that user 1000 took and released
//
// A lease is one file. Its owner keeps the file locked (flock) while it runs. When
// the owner dies, the kernel releases the lock and the lease is free, even if the
// PID was reused or belongs to another PID namespace. A lease without an owner
// (gpus allocate NAME MB) lasts until it is released or expires. The PID in a lease
// is for people. It is stored with the process's start time and PID namespace; if
// that process has exited or runs in another container, readers look for the
// processes that have the file open.
//
// A lease is either exclusive or for an amount of its GPU's memory. Memory in use
// without a lease counts as taken, and so does the reserve.
//
// To take a lease, a process takes the lock, reads all files, decides, writes the
// new file aside, locks it, renames it into place and releases the lock. Files never
// change and names are never reused, so readers need no lock, and a file whose owner
// has released it stays free.
//
// Leases are cooperative: they do not prevent a process from using a GPU without one.
package lease
