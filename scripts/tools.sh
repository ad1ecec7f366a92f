#!/usr/bin/env bash
# Installs Debian packages whose command or file is missing: PACKAGE:COMMAND or
# PACKAGE:/FILE. Never fails: it reports what it cannot install, and the callers report
# what they skip as a result.
missing=()
for pair in "$@"; do
	package=${pair%%:*} want=${pair#*:}
	if [[ $want == /* ]]; then
		[[ -e $want ]] || missing+=("$package")
	else
		command -v "$want" >/dev/null || missing+=("$package")
	fi
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
	as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
	echo "NOTE: missing, and cannot be installed here: ${missing[*]}" >&2
	exit 0
fi
echo "installing with apt-get: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	echo "NOTE: could not install ${missing[*]}:" >&2
	tail -n 5 "$log" >&2
fi
rm -f "$log"
exit 0
