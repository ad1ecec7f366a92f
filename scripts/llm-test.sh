#!/usr/bin/env bash
# Runs scripts/llm_test.py in an environment of its own, .venv-llm, with a real model server.
# The first run downloads some gigabytes. Without a registry it reports what it skips.
set -euo pipefail
environment=.venv-llm
if [[ ! -e $environment/ready ]]; then
	echo "creating $environment with transformers[serving], torch and openai"
	python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
	if ! { python3 -m venv "$environment" && "$environment/bin/pip" install -q 'transformers[serving]' torch openai; }; then
		echo "SKIPPED: cannot install transformers[serving], torch and openai: no real model server is tested" >&2
		exit 0
	fi
	touch "$environment/ready"
fi
exec "$environment/bin/python" scripts/llm_test.py --gpurun bin/gpurun
