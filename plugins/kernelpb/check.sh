#!/bin/sh
# Fails if the committed code does not match kernel.proto. Only the protoc version in
# the header may differ between machines.
set -eu
cd "$(dirname "$0")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
./generate.sh "$fresh"
for file in *.pb.go; do
	if ! diff -u -I '^// .*protoc ' -I '^//.*protoc-gen' "$file" "$fresh/$file"; then
		echo "$file is out of date with kernel.proto: run make generate" >&2
		exit 1
	fi
done
