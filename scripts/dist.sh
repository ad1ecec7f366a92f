#!/usr/bin/env bash
# Builds the wheels: one for each architecture, with NVML where there is a C compiler for
# it. Set ARCHS to build fewer, OUT to put them elsewhere.
set -euo pipefail
GO=${GO:-go} OUT=${OUT:-dist} ARCHS=${ARCHS:-amd64 arm64}
source "$(dirname "$0")/version.sh"
export VERSION COMMIT COMMIT_TIME
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
GOFLAGS=-trimpath $GO run ./deploy/licenses >"$OUT/THIRD_PARTY_LICENSES"
for arch in $ARCHS; do
	program=$OUT/linux-$arch/gpurun
	GOOS=linux GOARCH=$arch SMALL=1 "$(dirname "$0")/build.sh" "$program"
	$GO run ./python/wheel -binary "$program" -version "$VERSION" -licenses "$OUT/THIRD_PARTY_LICENSES" -out "$OUT"
done
