#!/usr/bin/env bash
# Builds the wheels: one for each architecture, with NVML where there is a C compiler for
# it. Set ARCHS to build fewer, OUT to put them elsewhere.
set -euo pipefail
GO=${GO:-go} OUT=${OUT:-dist} ARCHS=${ARCHS:-amd64 arm64}
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
native=$($GO env GOHOSTARCH)
mkdir -p "$OUT"
for arch in $ARCHS; do
	case $arch in
	amd64) cross=x86_64-linux-gnu-gcc ;;
	arm64) cross=aarch64-linux-gnu-gcc ;;
	*) echo "dist: no wheels for $arch" >&2; exit 2 ;;
	esac
	cc=$cross
	if [[ $arch == "$native" ]]; then cc=cc; fi
	cgo=1
	if ! command -v "$cc" >/dev/null; then
		echo "NOTE: no $cc: building gpurun for $arch without NVML, for CPU devices only" >&2
		cgo=0
	fi
	program=$OUT/linux-$arch/gpurun
	GOOS=linux GOARCH=$arch CGO_ENABLED=$cgo CC=$cc CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" \
		$GO build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o "$program" ./cmd/gpurun
	$GO run ./python/wheel -binary "$program" -version "$VERSION" -out "$OUT"
done
