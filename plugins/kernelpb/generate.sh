#!/bin/sh
# Generates the Go code for kernel.proto, here or in the given folder, with protoc and
# the generators that go.mod pins as tools.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
out=${1:-.}
PATH="$bin:$PATH" protoc --go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative kernel.proto
