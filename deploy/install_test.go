package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// throwaway runs a script as root on a copy of this system that is thrown away: an overlay
// in a mount namespace of its own. The arguments are $1 and so on.
const throwaway = `
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/tmp"
cp "$2" "$1/root/tmp/gpurun.deb"
cp "$3" "$1/root/tmp/script"
exec chroot "$1/root" bash -euo pipefail /tmp/script
`

// TestDebianInstalls installs the Debian package with dpkg, uses what it contains, installs
// it again, and removes it.
func TestDebianInstalls(t *testing.T) {
	path, err := filepath.Abs(one(t, filepath.Join(packages(t), "gpurun_*_"+runtime.GOARCH+".deb")))
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"dpkg", "unshare", "mount", "chroot"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: no %s: the Debian package is not installed", tool)
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: mounting needs root: the Debian package is not installed: %v: %s", err, out)
	}
	script, err := filepath.Abs("testdata/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", throwaway, "throwaway", dir, path, script)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
