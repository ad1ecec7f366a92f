#!/usr/bin/env bash
# Prints a folder for PATH with the C compilers gpurun-gcc-amd64 and gpurun-gcc-arm64, as far as
# the arguments name them. They compile for the glibc of Debian 11, with the headers and
# libraries of its packages, so that programs run on systems with glibc 2.28. Their names are the
# same on every machine, because Go records the name of the compiler in what it builds.
#
# The packages come from apt's mirror of Debian, or from DEBIAN_MIRROR where apt has another
# one. Copies are kept next to the folder, for the day on which the mirror drops them. Exits
# with status 1, and says why, if a compiler cannot be prepared.
set -euo pipefail
folder=${GPURUN_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/gpurun-tools}/sysroot

fail() {
	echo "$*" >&2
	exit 1
}

# packages prints the checksums and the paths, below a mirror, of an architecture's packages.
packages() {
	grep "_$1.deb$" <<-END
		05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282 pool/main/g/glibc/libc6_2.31-13+deb11u11_amd64.deb
		e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3 pool/main/g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb
		e3be603bd12377bb90fcfb0f2048ca3a81c886e49d6f09945b82159d1c54f7b2 pool/main/l/linux/linux-libc-dev_5.10.223-1_amd64.deb
		baaa9aa184e2f21738c5819055e6740cc5b22f198e3f416e33f82b40ff6933d8 pool/main/g/glibc/libc6_2.31-13+deb11u11_arm64.deb
		28d478134722dcd4b0bd2045a199301d18713bf95947b9fce66634e7aeacab2e pool/main/g/glibc/libc6-dev_2.31-13+deb11u11_arm64.deb
		8b6374a64412d33eac61d74f77b8f932da4b8a707ea8a614791e2a35b8917618 pool/main/l/linux/linux-libc-dev_5.10.223-1_arm64.deb
	END
}

mirrors() {
	echo "${DEBIAN_MIRROR:-}"
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed 's,/$,,' | sort -u
}

# keep makes sure that there is a copy of a package, with the right checksum.
keep() {
	local sum=$1 path=$2 copy=$folder/packages/${2##*/} mirror
	sha256sum --status -c <<<"$sum  $copy" 2>/dev/null && return
	mkdir -p "$folder/packages"
	for mirror in $(mirrors); do
		/usr/lib/apt/apt-helper download-file "$mirror/$path" "$making/package" "SHA256:$sum" >"$making/log" 2>&1 &&
			mv "$making/package" "$copy" && return
	done
	tail -n 3 "$making/log" >&2
	fail "cannot download ${path##*/}: set DEBIAN_MIRROR to a mirror of Debian, or put a copy into $folder/packages"
}

# unpack writes the headers and libraries of an architecture's packages to a folder. Absolute
# links would lead out of it.
unpack() {
	local sum path link
	while read -r sum path; do
		keep "$sum" "$path"
		dpkg-deb -x "$folder/packages/${path##*/}" "$2"
	done < <(packages "$1")
	find "$2" -lname '/*' | while read -r link; do
		ln -snfr "$2$(readlink "$link")" "$link"
	done
}

# compiler prints a script that runs gcc for a sysroot. Without -isystem, a cross compiler
# prefers its own headers. The name of the sysroot must not get into what is compiled: the last
# map that fits applies, and Go's own ones fit if the sysroot is below the source.
compiler() {
	local gcc=$1 triple=$2 root=$3
	cat <<-END
		#!/bin/sh
		exec $gcc --sysroot='$root' -isystem '$root/usr/include/$triple' -isystem '$root/usr/include' \\
			-B '$root/usr/lib/$triple/' -L'$root/usr/lib/$triple' -L'$root/lib/$triple' "\$@" '-ffile-prefix-map=$root=/sysroot'
	END
}

command -v dpkg-deb >/dev/null && [[ -x /usr/lib/apt/apt-helper ]] || fail "no apt: cannot unpack the libraries of Debian 11"
mkdir -p "$folder/bin"
making=$(mktemp -d "$folder/XXXXXX")
trap 'rm -rf "$making"' EXIT
for arch in "$@"; do
	case $arch in
	amd64) triple=x86_64-linux-gnu ;;
	arm64) triple=aarch64-linux-gnu ;;
	*) fail "no libraries of Debian 11 are known for $arch" ;;
	esac
	gcc=$triple-gcc
	if [[ $arch == "$(dpkg --print-architecture)" ]]; then
		gcc=gcc
	fi
	command -v "$gcc" >/dev/null || fail "no $gcc"
	root=$folder/$(packages "$arch" | sha256sum | cut -c1-16)-$arch
	if [[ ! -e $root ]]; then
		unpack "$arch" "$making/$arch"
		mv -T "$making/$arch" "$root" 2>/dev/null || [[ -e $root ]] # another build may have been faster
	fi
	compiler "$gcc" "$triple" "$root" >"$making/cc"
	chmod 755 "$making/cc"
	mv "$making/cc" "$folder/bin/gpurun-gcc-$arch"
done
echo "$folder/bin"
