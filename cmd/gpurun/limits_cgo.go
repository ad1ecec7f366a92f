//go:build cgo && linux

package main

/*
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// The minimum address space that the Go runtime, its threads and the C library need. With
// less, they crash with stack dumps, before main or at any later time.
static const unsigned long long least = 2ULL << 30;

// Runs before the Go runtime starts, which would fail otherwise.
__attribute__((constructor)) static void check_address_space(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least) return;
	dprintf(2,
		"gpurun: the address space is limited to %llu KiB (ulimit -v), but each gpurun process needs at least %llu KiB; "
		"raise the limit, for example with \"ulimit -v unlimited\"\n",
		(unsigned long long)limit.rlim_cur >> 10, least >> 10);
	_exit(2);
}
*/
import "C"

// checksAddressSpace reports whether gpurun explains an address space that is too small.
const checksAddressSpace = true
