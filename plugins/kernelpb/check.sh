#!/bin/sh
# Fails if the committed code is not what kernel.proto gives. The version of
# protoc in the header may differ from machine to machine; nothing else may.
set -eu
cd "$(dirname "$0")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
./generate.sh "$fresh"
for file in *.pb.go; do
	if ! diff -u -I '^// .*protoc ' -I '^//.*protoc-gen' "$file" "$fresh/$file"; then
		echo "$file is not in step with kernel.proto: run make generate" >&2
		exit 1
	fi
done
