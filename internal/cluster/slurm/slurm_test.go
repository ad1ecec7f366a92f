package slurm

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/internal/cluster"
)

func TestSplit(t *testing.T) {
	upTo := func(n int) (list []int) {
		for i := range n {
			list = append(list, i)
		}
		return list
	}
	for name, one := range map[string]struct {
		shards []int
		size   int
		want   string
	}{
		"none":            {nil, 1001, ""},
		"one array":       {upTo(8), 1001, "0:0-7"},
		"exactly full":    {upTo(1001), 1001, "0:0-1000"},
		"one too many":    {upTo(1002), 1001, "0:0-1000 1001:0"},
		"several":         {upTo(25), 10, "0:0-9 10:0-9 20:0-4"},
		"holes":           {[]int{1, 3, 4, 5, 19, 20, 39}, 10, "0:1,3-5 10:9 20:0 30:9"},
		"all behind zero": {[]int{12}, 10, "10:2"},
	} {
		var got []string
		for _, a := range Split(one.shards, one.size) {
			got = append(got, fmt.Sprintf("%d:%s", a.Offset, cluster.ArrayText(a.Tasks)))
		}
		if strings.Join(got, " ") != one.want {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
}

// job has every setting, and a path that shells and sbatch would split.
var job = Job{
	Name: "gpurun-out.jsonl", Program: "/shared/it's here/gpurun", Dir: "/shared/my work", Logs: "/shared/50% done/slurm",
	Nodes: 4, GPUsPerNode: 8, GPUType: "h100", Options: []string{"--partition=gpu", "--comment=two words", "-A proj", "--cpus-per-gpu=8", "--gres=nvme:1"},
	MergeOptions: []string{"--partition=cpu"}, Env: []string{"PATH=/shared/my venv/bin:/bin"}, Setup: []string{"module load cuda"}, Shards: 16, Lead: 90 * time.Second,
	Run: []string{"--kernel=embed.py", "--output=/shared/out.jsonl", "in $HOME.jsonl"}, Merge: []string{"submit", "merge", "/shared/out.jsonl"},
}

func TestArrayScript(t *testing.T) {
	want := `#!/bin/bash
#SBATCH --job-name=gpurun-out.jsonl
#SBATCH --array=0-2,7%4
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=h100:8
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
#SBATCH --output="/shared/50%% done/slurm/%A_%a.log"
#SBATCH --partition=gpu
#SBATCH --comment="two words"
#SBATCH -A proj
#SBATCH --cpus-per-gpu=8
#SBATCH --gres=nvme:1
export PATH='/shared/my venv/bin:/bin'
cd '/shared/my work' || exit 2
module load cuda
exec '/shared/it'\''s here/gpurun' run --shard auto/16 --kernel=embed.py --output=/shared/out.jsonl 'in $HOME.jsonl'
`
	if diff := cmp.Diff(want, job.ArrayScript(Array{Tasks: []int{0, 1, 2, 7}})); diff != "" {
		t.Error(diff)
	}
	second := job.ArrayScript(Array{Offset: 1001, Tasks: []int{0}})
	if !strings.Contains(second, "--shard auto+1001/16 ") || !strings.Contains(second, "--array=0%4\n") {
		t.Errorf("second array:\n%s", second)
	}
}

func TestMergeScript(t *testing.T) {
	want := `#!/bin/bash
#SBATCH --job-name=gpurun-out.jsonl-merge
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="/shared/50%% done/slurm/merge_%j.log"
#SBATCH --partition=gpu
#SBATCH --comment="two words"
#SBATCH -A proj
#SBATCH --partition=cpu
cd '/shared/my work' || exit 2
module load cuda
exec '/shared/it'\''s here/gpurun' submit merge /shared/out.jsonl
`
	if diff := cmp.Diff(want, job.MergeScript()); diff != "" {
		t.Error(diff)
	}
}

func TestOptions(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"--partition=gpu  --time=1:00": {"--partition=gpu", "--time=1:00"},
		"--partition gpu":              {"--partition=gpu"},
		"-p gpu -A x --exclusive":      {"-p gpu", "-A x", "--exclusive"},
		`--comment="two words"`:        {"--comment=two words"},
		`--comment='a "b"' -t 5`:       {`--comment=a "b"`, "-t 5"},
	} {
		got, err := Options([]string{text})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"partition=gpu":       "not an option",
		"--array=0-3":         "--array",
		"-a 0-3":              "--array",
		"--output=x":          "--output",
		"-N2":                 "--nodes",
		`--comment="unclosed`: "not closed",
	} {
		if got, err := Options([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

// TestQuote lets a real shell read what Command writes.
func TestQuote(t *testing.T) {
	words := []string{"a", "", "two words", "it's", `"$HOME"`, "`id`", "*", "a\nb", `\`, "-x=y,z:@%+./", "é", "~"}
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+Command(words)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("%q, want %q", got, words)
	}
}
