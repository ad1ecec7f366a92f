#!/usr/bin/env bash
# Builds a wheel for each architecture in ARCH, or for this machine, with NVML where there is a
# C compiler for it. Set OUT to put them elsewhere. They are for glibc 2.28 and newer. Where the
# compilers for that are missing, and with SYSROOT=no, which compiles no C code again, they are
# for the glibc of this machine.
set -euo pipefail
GO=${GO:-go} OUT=${OUT:-dist}
ARCH=${ARCH:-$($GO env GOHOSTARCH)}
source "$(dirname "$0")/version.sh"
export VERSION COMMIT COMMIT_TIME
echo "building a wheel for $ARCH; the first build downloads and compiles its dependencies, which takes a minute or two" >&2
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
GOFLAGS=-trimpath $GO run ./deploy/licenses >"$OUT/THIRD_PARTY_LICENSES"
for arch in $ARCH; do
	program=$OUT/linux-$arch/gpurun path=$PATH limit=()
	if [[ ${SYSROOT:-} == no ]] || ! compilers=$("$(dirname "$0")/sysroot.sh" "$arch"); then
		echo "NOTE: the wheel for $arch needs the glibc of this machine, or a newer one" >&2
	else
		path=$compilers:$PATH limit=(-glibc 2.28)
	fi
	GOOS=linux GOARCH=$arch SMALL=1 PATH=$path "$(dirname "$0")/build.sh" "$program"
	$GO run ./python/wheel "${limit[@]}" -binary "$program" -version "$VERSION" -licenses "$OUT/THIRD_PARTY_LICENSES" -out "$OUT"
done
