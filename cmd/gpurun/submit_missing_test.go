package main

import (
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/internal/cluster"
)

// TestMissingCommand: the command that is suggested for missing shards computes all of them.
func TestMissingCommand(t *testing.T) {
	run := &cluster.Run{Manifest: cluster.Manifest{Output: filepath.Join(t.TempDir(), "out.jsonl"), Shards: 4}}
	for _, test := range []struct {
		command []string
		want    string
	}{
		{[]string{"gpurun", "run", "--shard", "0/4", "--no-claim", "in.jsonl"}, "gpurun run --shard 1/4 in.jsonl"},
		{[]string{"gpurun", "run", "--no-claim=true", "--shard=0/4", "in.jsonl"}, "gpurun run --shard=1/4 in.jsonl"},
	} {
		run.Command = test.command
		if got := missingCommand(run, []int{1, 2, 3}); got != test.want {
			t.Errorf("%v\ngot  %s\nwant %s", test.command, got, test.want)
		}
	}
}
