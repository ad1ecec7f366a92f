//go:build cgo && linux

package main

/*
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// The least address space that Go's runtime, its threads and the C library work with.
// With less, they end the process with a dump of their stacks, before main or at any
// later moment.
static const unsigned long long least = 2ULL << 30;

// It runs before Go's runtime starts, which would fail first.
__attribute__((constructor)) static void check_address_space(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least) return;
	dprintf(2,
		"gpurun: the address space is limited to %llu KiB (ulimit -v), and each process of gpurun needs %llu KiB or more; "
		"raise the limit, for example with \"ulimit -v unlimited\"\n",
		(unsigned long long)limit.rlim_cur >> 10, least >> 10);
	_exit(2);
}
*/
import "C"
