#!/usr/bin/env bash
# Prints the path of a Go program, MODULE/PATH@VERSION, and builds it first if necessary. It
# uses the user's Go caches, not those of a build under test, and keeps the program: big
# tools take minutes to compile. Exits with status 1, and says why, if it cannot be built, or
# if it would have to be and GPURUN_TOOLS_BUILD=no.
set -euo pipefail
GO=${GO:-go} package=$1
path=${package%@*} version=${package##*@}
name=$(sed 's,/v[0-9]*$,,; s,.*/,,' <<<"$path")
dir=${GPURUN_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/gpurun-tools}/$name-$version-$($GO env GOVERSION)
if [[ ! -x $dir/$name ]]; then
	if [[ ${GPURUN_TOOLS_BUILD:-} == no ]]; then
		echo "$name $version has not been built on this machine" >&2
		exit 1
	fi
	mkdir -p "$dir"
	building=$(mktemp -d "$dir/XXXXXX")
	trap 'rm -rf "$building"' EXIT
	echo "building $name $version; this happens once" >&2
	if ! env -u GOCACHE -u GOMODCACHE GOFLAGS='' CGO_ENABLED=0 GOBIN="$building" $GO install "$package" >&2; then
		exit 1
	fi
	mv "$building/$name" "$dir/$name"
fi
echo "$dir/$name"
