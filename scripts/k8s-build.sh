#!/usr/bin/env bash
# Prints the folder with the servers of Kubernetes (etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler) in the version that deploy/cluster/go.mod names, and
# builds those that are missing. The folder is in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/../deploy/cluster"
GO=${GO:-go}
version=$(GOFLAGS='' $GO list -m -f '{{.Version}}' k8s.io/kubernetes)
dir=${GPURUN_K8S:-${XDG_CACHE_HOME:-$HOME/.cache}/gpurun-k8s/$version-$($GO env GOVERSION)}
mkdir -p "$dir"
building=$(mktemp -d "$dir/XXXXXX")
trap 'rm -rf "$building"' EXIT
for path in go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler}; do
	name=${path##*/}
	[[ $name == v3 ]] && name=etcd
	[[ -x $dir/$name ]] && continue
	if [[ -z ${said:-} ]]; then
		said=yes
		echo "building the servers of Kubernetes $version in $dir; this happens once. It downloads about 100 MB and takes 2 GB of memory and, on two cores, 6 to 16 minutes" >&2
	fi
	# -p 2 and nice leave the machine usable.
	CGO_ENABLED=0 GOFLAGS=-trimpath nice $GO build -p 2 -ldflags='-s -w' -o "$building/$name" "$path" >&2
	mv "$building/$name" "$dir/$name"
done
echo "$dir"
