#!/usr/bin/env bash
# Builds gpurun as $1, for GOARCH, with NVML where there is a C compiler for it. The result
# depends on the commit and the compilers alone: not on the folder, the caches, the user's
# Go settings or the time. SMALL=1 leaves symbols for debuggers out.
set -euo pipefail
GO=${GO:-go}
cd "$(dirname "$0")/.."
source scripts/version.sh
arch=${GOARCH:-$($GO env GOHOSTARCH)}
# The compiler for old systems, if scripts/sysroot.sh has put it on PATH. Otherwise the one that
# Go would use: with another name, it would compile all C code again.
cc=gpurun-gcc-$arch
if ! command -v "$cc" >/dev/null; then
	cc=${CC:-$($GO env CC)}
	command -v "${cc%% *}" >/dev/null || cc=cc
	if [[ $arch != $($GO env GOHOSTARCH) ]]; then
		case $arch in
		amd64) cc=x86_64-linux-gnu-gcc ;;
		arm64) cc=aarch64-linux-gnu-gcc ;;
		*) echo "build: no C compiler is known for $arch" >&2; exit 2 ;;
		esac
	fi
fi
cgo=1
if ! command -v "${cc%% *}" >/dev/null; then
	echo "NOTE: no $cc: building gpurun for $arch without NVML, for CPU devices only" >&2
	cgo=0
fi
# NVML's functions are found when they are first called: a machine without the driver must
# be able to start the program, also where the linker would bind all of them at once.
flags="-extldflags=-Wl,-z,lazy -X main.version=$VERSION -X main.sourceCommit=$COMMIT -X main.sourceTime=$COMMIT_TIME"
if [[ -n ${SMALL:-} ]]; then
	flags="-s -w $flags"
fi
GOFLAGS='' GOARCH=$arch CGO_ENABLED=$cgo CC=$cc CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" CGO_LDFLAGS="-O2 -g" \
	exec $GO build -trimpath -buildvcs=false -ldflags "$flags" -o "$1" ./cmd/gpurun
