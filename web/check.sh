#!/bin/sh
# Checks that web/dist is what npm builds from web/src.
set -e
cd "$(dirname "$0")"
if ! npm ci --silent --ignore-scripts --no-audit --no-fund 2>/dev/null; then
	echo "SKIPPED: npm cannot install the versions in web/package-lock.json: cannot check whether web/dist is up to date"
	exit 0
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
node build.mjs "$built"
if ! diff -r dist "$built" >/dev/null; then
	echo "web/dist is not up to date: run make web and commit the result"
	exit 1
fi
