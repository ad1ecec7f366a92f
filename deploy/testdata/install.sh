# What a user of the Debian package does, on a system that is thrown away: /tmp/gpurun.deb is
# the package. Run by TestDebianInstalls.
cd /tmp
fail() { echo "FAILED: $*" >&2; exit 1; }

[ ! -e /usr/bin/gpurun ] || fail "gpurun is installed on this system already"
dpkg -i gpurun.deb
dpkg -i gpurun.deb # an upgrade keeps the user and the files
[ "$(dpkg-query -W -f '${Status}' gpurun)" = "install ok installed" ] || fail "dpkg does not list it as installed"
[ -z "$(dpkg -V gpurun)" ] || fail "dpkg finds changed files: $(dpkg -V gpurun)"

# The user of the service runs a job.
getent passwd gpurun >/dev/null || fail "there is no user gpurun"
install -d -o gpurun -g gpurun job
printf '{"a":1}\n' >job/in.jsonl
(cd job && HOME=$PWD setpriv --reuid gpurun --regid gpurun --clear-groups gpurun run -k echo in.jsonl -o out.jsonl --gpus cpu:1)
cmp job/in.jsonl job/out.jsonl

# All users share the folder of leases, and none owns it.
if command -v systemd-tmpfiles >/dev/null; then
	[ "$(stat -c '%a %U' /run/gpurun)" = "1777 root" ] || fail "/run/gpurun: $(stat -c '%a %U' /run/gpurun)"
else
	echo "SKIPPED: no systemd-tmpfiles: nothing creates the folder of leases"
fi

# Man pages and completions.
if command -v man >/dev/null; then
	for page in gpurun gpurun-run gpurun-exit-codes; do
		man -P cat "$page" >page.txt 2>complaints.txt || fail "man $page: $(cat complaints.txt)"
		[ -s page.txt ] || fail "man $page prints nothing"
	done
else
	echo "SKIPPED: no man: the man pages are not shown"
fi
bash -c 'source /usr/share/bash-completion/completions/gpurun && complete -p gpurun' >completions.txt && grep -q gpurun completions.txt || fail "bash completes nothing"
gpurun __complete run --out >completions.txt 2>/dev/null # grep -q would end it early
grep -q -- --output completions.txt || fail "run --out is not completed"
for shell in zsh:/usr/share/zsh/vendor-completions/_gpurun fish:/usr/share/fish/vendor_completions.d/gpurun.fish; do
	if command -v "${shell%%:*}" >/dev/null; then
		"${shell%%:*}" -n "${shell#*:}" || fail "${shell%%:*} cannot read its completions"
	else
		echo "SKIPPED: no ${shell%%:*}: its completions are not read"
	fi
done

# The unit of systemd, and the command that it starts.
if command -v systemd-analyze >/dev/null; then
	systemd-analyze verify --man=no /lib/systemd/system/gpurun-serve.service 2>complaints.txt || fail "the unit: $(cat complaints.txt)"
	! grep gpurun complaints.txt || fail "systemd complains about the unit"
else
	echo "SKIPPED: no systemd-analyze: the unit is not verified"
fi

dpkg -r gpurun
for path in /usr/bin/gpurun /lib/systemd/system/gpurun-serve.service /usr/share/doc/gpurun /usr/share/man/man1/gpurun.1.gz; do
	[ ! -e "$path" ] || fail "$path is left after the removal"
done
dpkg -P gpurun
if dpkg-query -W gpurun 2>/dev/null; then
	fail "dpkg still knows the package"
fi
echo "installed, used and removed"
