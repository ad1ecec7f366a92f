package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpurun/gpurun/internal/cluster/k8s"
	"github.com/gpurun/gpurun/internal/cluster/slurm"
	"github.com/gpurun/gpurun/orchestrator"
)

const submitK8sHelp = `Print an Indexed Job for Kubernetes that runs a job on several nodes: a pod per shard, each
with its GPUs and the volume that holds input and output. The pod that finishes last
merges the results, and the Job succeeds.

  gpurun submit k8s --print --image registry.example/embed:1 --claim data --nodes 4 --gpus-per-node 8 \
      -k /app/embed.py /data/in.jsonl -o /data/out.jsonl > job.yaml
  kubectl apply -f job.yaml

Paths are those in the pod. The volume claim must allow writing from several nodes
(ReadWriteMany); it is mounted at /data unless --claim NAME:FOLDER says otherwise. The
image contains the kernel and gpurun; the kernel is checked if it is here, too. Pods run
without root.

Apply the same manifest again, after kubectl delete job, to compute what is missing.
Accepts every flag of gpurun run; the pods get them.`

// podRetries is how often Kubernetes replaces the failed pod of a shard.
const podRetries = 3

type k8sFlags struct {
	submitFlags
	k8s.Job
	claim string
}

func newSubmitK8s() *cobra.Command {
	f := &k8sFlags{}
	cmd := &cobra.Command{
		Use:   "k8s --print --image IMAGE --claim CLAIM --nodes N --gpus-per-node G -k KERNEL INPUT... -o OUTPUT",
		Short: "Print a Kubernetes job that runs on several nodes",
		Long:  submitK8sHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.submit(cmd, os.Stdout, args) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.print, "print", false, "print the manifest; required, since gpurun does not call Kubernetes itself")
	flags.StringVar(&f.Image, "image", "", "container image with the kernel and gpurun")
	flags.StringVar(&f.claim, "claim", "", "volume claim with input and output, mounted at /data: NAME or NAME:FOLDER")
	f.registerSubmit(flags, "pods")
	flags.StringVar(&f.Namespace, "namespace", "", "namespace of the job (default: that of kubectl)")
	flags.StringVar(&f.CPUs, "cpus", "", "CPUs of each pod, such as 32 (default: no limit)")
	flags.StringVar(&f.Memory, "memory", "", "memory of each pod, such as 256Gi (default: no limit)")
	flags.IntVar(&f.User, "user", 1000, "user and group id of the pods, which must be able to write to the volume; not 0")
	flags.StringArrayVar(&f.NodeSelector, "node-selector", nil, "run on nodes with this label: `KEY=VALUE` (repeatable)")
	flags.StringArrayVar(&f.Tolerations, "toleration", nil, "accept nodes with this taint: `KEY` or KEY=VALUE (repeatable)")
	flags.StringVar(&f.Program, "gpurun", "gpurun", "`PATH` of gpurun in the image")
	return cmd
}

func (f *k8sFlags) submit(cmd *cobra.Command, w io.Writer, args []string) error {
	config, err := f.prepare(cmd, args)
	if err != nil {
		return err
	}
	if err := f.check(config); err != nil {
		return err
	}
	if err := f.checkKernel(cmd.Context(), config); err != nil {
		return err
	}
	f.Shards, f.Job.Nodes, f.GPUs, f.Retries = f.shardCount, f.nodes, f.gpusPerNode, podRetries
	f.Name = k8s.Name("gpurun-" + filepath.Base(config.Output.Path))
	if f.runFlags.name != "" {
		f.Name = k8s.Name(f.runFlags.name)
	}
	f.Status = oneLine(slurm.Quote(f.Program) + " submit status " + slurm.Quote(config.Output.Path))
	f.Comment = oneLine(fmt.Sprintf("gpurun submit k8s: %d shards of %s", f.shardCount, config.Output.Path))
	f.Args = append([]string{"run", "--shard", fmt.Sprintf("auto/%d", f.shardCount), "--merge"}, f.forwarded(cmd.Flags())...)
	_, err = io.WriteString(w, f.Manifest())
	return err
}

// checkKernel checks the kernel as gpurun plan does, without a device and without the input, which
// is on the volume. A kernel that only the image has cannot be checked.
func (f *k8sFlags) checkKernel(ctx context.Context, config orchestrator.Config) error {
	config.Input.Path, config.Input.Paths = "-", nil
	err := orchestrator.CheckKernel(ctx, config)
	if info, missing := os.Stat(config.Kernel.Name); err != nil && (missing != nil || info.IsDir() || lacksInterpreter(err)) {
		fmt.Fprintf(os.Stderr, "gpurun: the kernel was not checked, because the image has it: here, %v\n", err)
		return nil
	}
	return f.job.origins.explain(err)
}

// oneLine makes a text fit in a comment.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// check rejects what would fail in the cluster only.
func (f *k8sFlags) check(config orchestrator.Config) error {
	name, mount, _ := strings.Cut(f.claim, ":")
	if mount == "" {
		mount = "/data"
	}
	switch {
	case !f.print:
		return usagef("gpurun does not call Kubernetes itself: add --print and pass the manifest to kubectl apply -f")
	case f.gpuType != "":
		return usagef("--gpus-per-node %s: Kubernetes selects the type of GPUs by the labels of nodes: use --gpus-per-node %d and --node-selector", f.gpus, f.gpusPerNode)
	case f.Image == "":
		return usagef("--image is missing: the container image with the kernel and gpurun")
	case name == "":
		return usagef("--claim is missing: the volume claim with input and output, such as --claim data")
	case !path.IsAbs(mount):
		return usagef("--claim %s: the folder must start with /", f.claim)
	case f.User <= 0:
		return usagef("--user %d: pods do not run as root; name a user that can write to the volume", f.User)
	case f.job.name != "":
		return usagef("--job-file: pods do not have it; gpurun plan --print shows its settings, which are flags of this command too")
	case f.noClaim:
		return usagef("--no-claim does not fit gpurun submit k8s: pods take over the shards of lost ones, and stay until the output is merged")
	case config.Resume.Clean:
		return usagef("--clean does not fit gpurun submit k8s: remove %s.shards when the output is merged", strings.TrimSuffix(config.Output.Path, "/"))
	case !below(mount, config.Output.Path):
		return usagef("output %s is not on the volume, which is mounted at %s", config.Output.Path, mount)
	}
	for _, pair := range f.NodeSelector {
		if !strings.Contains(pair, "=") {
			return usagef("--node-selector %q: must be KEY=VALUE", pair)
		}
	}
	f.Claim, f.Mount = name, mount
	return nil
}

// below reports whether a path in a pod is in a folder. Relative ones are: pods start there.
func below(dir, name string) bool {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return strings.HasPrefix(path.Clean(name)+"/", path.Clean(dir)+"/")
}
