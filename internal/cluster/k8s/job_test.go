package k8s

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden are the jobs of the golden files in testdata. deploy/check decodes the same files
// with the types of the Kubernetes API.
var golden = map[string]Job{
	"plain.yaml": {
		Name: "gpurun-out-jsonl", Image: "registry.example/embed:1", Program: "gpurun", Shards: 16, Nodes: 4, GPUs: 8,
		Args:   []string{"run", "--shard", "auto/16", "--merge", "--kernel=/app/embed.py", "--output=/data/out.jsonl", "--batch-size=64", "/data/in.jsonl"},
		Status: "gpurun submit status /data/out.jsonl", Claim: "data", Mount: "/data", User: 1000, Retries: 3, Comment: "gpurun submit k8s: 16 shards of /data/out.jsonl",
	},
	"all.yaml": {
		Name: "nightly", Namespace: "batch", Image: "registry.example/embed@sha256:0123", Program: "/opt/gpurun", Shards: 2500, Nodes: 64,
		CPUs: "8", Memory: "64Gi", Args: []string{"run", `--kernel-config={"a": "b: #c", "d": "<&>"}`, "two\nlines", "$(HOME)"},
		Status: "/opt/gpurun submit status 'out put/'", Claim: "shared", Mount: "/mnt/it's: here", User: 65532, Retries: 1, Comment: "c",
		NodeSelector: []string{"gpu.type=h200", "yes=true"}, Tolerations: []string{"dedicated=batch", "spot"},
	},
}

func TestManifests(t *testing.T) {
	for name, job := range golden {
		path := filepath.Join("testdata", name)
		got := job.Manifest()
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs; write it again with -update:\n%s", path, diff)
		}
	}
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		"out.jsonl": "out-jsonl", "/data/My Output/": "data-my-output", "--": "", "ü": "",
		"a123456789b123456789c123456789d123456789e123456789f123": "a123456789b123456789c123456789d123456789e123456789",
	} {
		if got := Name(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
