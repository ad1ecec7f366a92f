package resources

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// system writes files and returns the system that has only those.
func system(t *testing.T, files map[string]string) System {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return System{root}
}

// eight is the affinity of a machine with eight cores.
const eight = "Name:\tgpurun\nCpus_allowed_list:\t0-5,8,10\n"

func TestCores(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int
	}{
		"nothing known": {nil, runtime.NumCPU()},
		"affinity":      {map[string]string{"proc/self/status": eight}, 8},
		"v2, unlimited": {map[string]string{"proc/self/status": eight, "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 8},
		"v2, container": {map[string]string{"proc/self/status": eight, "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}, 3},
		"v2, above it": {map[string]string{
			"proc/self/status": eight, "proc/self/cgroup": "0::/jobs/mine/step",
			"sys/fs/cgroup/jobs/mine/step/cpu.max": "max 100000", "sys/fs/cgroup/jobs/mine/cpu.max": "200000 100000", "sys/fs/cgroup/jobs/cpu.max": "400000 100000",
		}, 2},
		"v1, the host's path": {map[string]string{
			"proc/self/status": eight, "proc/self/cgroup": "3:memory:/docker/1\n2:cpu,cpuacct:/docker/1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
		}, 1},
		"v1, unlimited": {map[string]string{
			"proc/self/status": eight, "proc/self/cgroup": "2:cpuacct,cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
		}, 8},
		"damaged": {map[string]string{"proc/self/status": "Cpus_allowed_list:\t-,x-y\n", "proc/self/cgroup": "0:\n::\n0::/", "sys/fs/cgroup/cpu.max": "1"}, runtime.NumCPU()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := system(t, test.files).Cores(); got != test.want {
				t.Errorf("%d cores, want %d", got, test.want)
			}
		})
	}
}

func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal: 16000 kB\nMemAvailable: 8000 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"nothing known": {nil, 0},
		"no limit":      {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.current": "5"}, 8000 << 10},
		"v2": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "1000000",
			"sys/fs/cgroup/a/memory.current": "900000", "sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 400000\n",
		}, 500000},
		"v1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000000",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes": "900000", "sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
		}, 200000},
		"more used than allowed": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1000", "sys/fs/cgroup/memory.current": "2000",
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := system(t, test.files).Available(); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}

func TestMeter(t *testing.T) {
	files := map[string]string{
		"proc/self/status": "Cpus_allowed_list:\t0-1\n", "proc/self/cgroup": "0::/",
		"proc/stat": "cpu 9 9 9 9 9 9\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 100 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\n",
	}
	m := system(t, files)
	meter := NewMeter(m)
	files["proc/stat"] = "cpu 9 9 9 9 9 9\ncpu0 200 0 0 100 0 0 0 0 0 0\ncpu1 125 0 0 150 25 0 0 0 0 0\ncpu2 0 0 0 500 0 0 0 0\n"
	if err := os.WriteFile(filepath.Join(m.Root, "proc/stat"), []byte(files["proc/stat"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if u := meter.Sample(); u.Cores != 2 || u.Idle != 0.75 {
		t.Errorf("%+v: cpu0 was busy, cpu1 idle for three quarters of the time", u)
	}
	if u := meter.Sample(); u.Idle >= 0 {
		t.Errorf("no time has passed: %+v", u)
	}
}

// TestTrees measures a shell whose child computes.
func TestTrees(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("no /proc/self/schedstat")
	}
	cmd := exec.Command("sh", "-c", "(while :; do :; done) & read line; kill $!")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = cmd.Wait() }()
	deadline := time.Now().Add(20 * time.Second)
	for {
		tree := System{}.Processes().Trees([]int{cmd.Process.Pid})[0]
		if tree.Processes == 2 && tree.Ran > 0.02 && tree.Memory > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", tree)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if all := (System{}).Processes().Trees([]int{1 << 30, os.Getpid()}); all[0].Processes != 0 || all[1].Processes < 3 {
		t.Errorf("%+v", all)
	}
	if children := (System{}).Processes().Children(os.Getpid()); !slices.Contains(children, cmd.Process.Pid) {
		t.Errorf("%d is not among %v", cmd.Process.Pid, children)
	}
}

func TestThisMachine(t *testing.T) {
	if n := Cores(); n < 1 || n > runtime.NumCPU() {
		t.Errorf("%d cores of %d", n, runtime.NumCPU())
	}
}
