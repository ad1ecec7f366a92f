#!/usr/bin/env bash
# Runs scripts/orchestrators_test.py with Airflow, Dagster, Prefect, Ray and Dask, each in an environment of its own
# below .venv-orchestrators, with 2 GB in all. Where one does not install, it reports that.
set -euo pipefail
folder=.venv-orchestrators

# make_environment NAME PACKAGE...: an environment with these packages.
make_environment() {
	local name=$1 environment=$folder/$1
	shift
	[[ -e $environment/ready ]] && return
	echo "creating $environment with $*"
	if ! { python3 -m venv --clear "$environment" && "$environment/bin/pip" install -q --disable-pip-version-check cloudpickle "$@"; }; then
		echo "SKIPPED: cannot install $*: the example for $name is not tested" >&2
		return 1
	fi
	touch "$environment/ready"
}

mkdir -p "$folder"
python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
tested=()
make_environment airflow 'apache-airflow>=3.1,<4' && tested+=(airflow)
make_environment dagster 'dagster>=1.10,<2' && tested+=(dagster)
make_environment prefect 'prefect>=3.4,<4' 'fastapi<0.140' && tested+=(prefect) # its server does not start with later ones
make_environment ray 'ray>=2.40,<3' && tested+=(ray)
make_environment dask 'distributed>=2025.1' && tested+=(dask)
[[ ${#tested[@]} -gt 0 ]] || exit 0
exec python3 scripts/orchestrators_test.py --gpurun bin/gpurun --environments "$folder" "${tested[@]}"
