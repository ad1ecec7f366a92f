#!/usr/bin/env bash
# Writes man pages and shell completions to $1/plain, and licenses and what Debian wants
# compressed to $1, byte for byte the same each time.
set -euo pipefail
GO=${GO:-go} out=$1
rm -rf "$out" && mkdir -p "$out"
umask 022
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
GO=$GO "$(dirname "$0")/build.sh" "$program/gpurun" # built as the packages are, so that nothing is compiled twice
"$program/gpurun" generate "$out/plain"
cp -r "$out/plain/man" "$out/man"
gzip -9n "$out"/man/man?/*
gzip -9nc CHANGELOG.md >"$out/changelog.gz"
GOFLAGS=-trimpath $GO run ./deploy/licenses >"$out/THIRD_PARTY_LICENSES"
