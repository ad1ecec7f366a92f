// Package lease is who holds which GPU, and how much of its memory, on one host
// and across users, without a daemon.
//
//	/run/gpurun/
//	  lock                            held for the moment of a decision
//	  GPU-4f…~a91b03c2d4e5.lease      one lease of one GPU
//	  history-1000.jsonl              what user 1000 was given and gave back
//
// A lease is one file. Its owner keeps that file locked (flock) for as long as it
// lives, so a dead owner's lease is free, whatever became of its process number,
// and whatever PID namespace it was in: the kernel gives the lock back. A lease
// without an owner (gpus allocate NAME MB) lives until it is given back or has
// expired. The process number in a lease is for people: it comes with the start time
// and the PID namespace that it belongs to, and where the process has ended, or is
// another container's, readers look for those that have the file open.
//
// A lease is exclusive, or for some memory of its GPU. Memory that is used by
// nobody with a lease counts as taken, and so does what is kept in reserve.
//
// Who wants a lease takes the lock, reads all files, decides, writes the new file
// aside, locks it, gives it its name, and lets go of the lock. A file is never
// changed and no name is used twice, so a reader needs no lock, and a file that was
// once free of its owner's lock stays free.
//
// Leases are an agreement between those who ask for them. Nobody is kept from
// using a GPU without one.
package lease
