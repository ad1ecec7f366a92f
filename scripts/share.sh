#!/usr/bin/env bash
# Writes man pages and shell completions to $1/plain, and licenses and what Debian wants
# compressed to $1, byte for byte the same each time. $2 is the version of the package.
set -euo pipefail
GO=${GO:-go} out=$1
source "$(dirname "$0")/version.sh"
rm -rf "$out" && mkdir -p "$out"
umask 022
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
GO=$GO "$(dirname "$0")/build.sh" "$program/gpurun" # built as the packages are, so that nothing is compiled twice
"$program/gpurun" generate "$out/plain"
cp -r "$out/plain/man" "$out/man"
gzip -9n "$out"/man/man?/*
gzip -9nc CHANGELOG.md >"$out/news.gz"
printf 'gpurun (%s) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n -- The gpurun authors <gpurun@users.noreply.github.com>  %s\n' \
	"${2:-0}" "$(LC_ALL=C date -u -R -d "${COMMIT_TIME:-1970-01-01}")" | gzip -9n >"$out/changelog.gz"
GOFLAGS=-trimpath $GO run ./deploy/licenses >"$out/THIRD_PARTY_LICENSES"
