#!/usr/bin/env bash
# Writes man pages and shell completions to $1/plain, and licenses and what Debian wants
# compressed to $1, byte for byte the same each time.
set -euo pipefail
GO=${GO:-go} out=$1
source "$(dirname "$0")/version.sh"
rm -rf "$out" && mkdir -p "$out"
umask 022
GOFLAGS='' CGO_ENABLED=0 $GO run -trimpath -buildvcs=false -ldflags "-X main.version=$VERSION" ./cmd/gpurun generate "$out/plain"
cp -r "$out/plain/man" "$out/man"
gzip -9n "$out"/man/man?/*
gzip -9nc CHANGELOG.md >"$out/changelog.gz"
GOFLAGS=-trimpath $GO run ./deploy/licenses >"$out/THIRD_PARTY_LICENSES"
