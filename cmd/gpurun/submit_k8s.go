package main

import (
	"cmp"
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
	"github.com/gpurun/gpurun/internal/fault"
	"github.com/gpurun/gpurun/orchestrator"
	"github.com/gpurun/gpurun/orchestrator/spec"
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

// k8sSubmit prints the manifest of a job.
type k8sSubmit struct {
	*clusterJob
	Job   k8s.Job
	Claim string
}

func newSubmitK8s() *cobra.Command {
	f := &k8sSubmit{}
	cmd := &cobra.Command{
		Use:   "k8s --print --image IMAGE --claim CLAIM --nodes N --gpus-per-node G -k KERNEL INPUT... -o OUTPUT",
		Short: "Print a Kubernetes job that runs on several nodes",
		Long:  submitK8sHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.submit(cmd, os.Stdout, args) },
	}
	settings := []spec.Setting{
		{Name: "image", Group: groupCluster, Field: "Job.Image", Common: true, Help: "container image with the kernel and gpurun"},
		{Name: "claim", Group: groupCluster, Field: "Claim", Common: true, Help: "volume claim with input and output, mounted at /data: NAME or NAME:FOLDER"},
		{Name: "namespace", Group: groupCluster, Field: "Job.Namespace", Help: "namespace of the job (default: that of kubectl)"},
		{Name: "cpus", Group: groupCluster, Field: "Job.CPUs", Help: "CPUs of each pod, such as 32 (default: no limit)"},
		{Name: "memory", Group: groupCluster, Field: "Job.Memory", Help: "memory of each pod, such as 256Gi (default: no limit)"},
		{Name: "user", Group: groupCluster, Kind: spec.Int, Field: "Job.User", Default: "1000", Help: "user and group id of the pods, which must be able to write to the volume; pods do not run as root"},
		{Name: "node-selector", Group: groupCluster, Kind: spec.Repeated, Field: "Job.NodeSelector", Value: "KEY=VALUE", Help: "run on nodes with this label (repeatable)"},
		{Name: "toleration", Group: groupCluster, Kind: spec.Repeated, Field: "Job.Tolerations", Value: "KEY", Help: "accept nodes with this taint: KEY or KEY=VALUE (repeatable)"},
		{Name: "gpurun", Group: groupCluster, Field: "Job.Program", Value: "PATH", Default: "gpurun", Help: "PATH of gpurun in the image"},
	}
	addFlags(cmd.Flags(), f, settings...)
	spec.Fill(f, settings...)
	f.clusterJob = newClusterJob(cmd, "pods", "print the manifest; required, since gpurun does not call Kubernetes itself")
	return cmd
}

func (f *k8sSubmit) submit(cmd *cobra.Command, w io.Writer, args []string) error {
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
	job, o := f.Job, f.options
	job.Shards, job.Nodes, job.GPUs, job.Retries = o.Shards, o.Nodes, o.GPUs.number, podRetries
	job.Name = k8s.Name(cmp.Or(f.job.options.Lease.Name, "gpurun-"+filepath.Base(config.Output.Path)))
	job.Status = oneLine(slurm.Quote(job.Program) + " submit status " + slurm.Quote(config.Output.Path))
	job.Comment = oneLine(fmt.Sprintf("gpurun submit k8s: %d shards of %s", o.Shards, config.Output.Path))
	job.Args = append([]string{"run", "--shard", fmt.Sprintf("auto/%d", o.Shards), "--merge"}, f.forwarded()...)
	_, err = io.WriteString(w, job.Manifest())
	return err
}

// checkKernel checks the kernel as gpurun plan does, without a device and without the input, which
// is on the volume. A kernel that only the image has cannot be checked.
func (f *k8sSubmit) checkKernel(ctx context.Context, config orchestrator.Config) error {
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
func (f *k8sSubmit) check(config orchestrator.Config) error {
	name, mount, _ := strings.Cut(f.Claim, ":")
	mount = cmp.Or(mount, "/data")
	switch gpus := f.options.GPUs; {
	case !f.options.Print:
		return fault.Kubernetes.New("gpurun does not call Kubernetes itself: add --print and pass the manifest to kubectl apply -f")
	case gpus.model != "":
		return fault.Kubernetes.New("--gpus-per-node %s:%d: Kubernetes selects the type of GPUs by the labels of nodes: use --gpus-per-node %[2]d and --node-selector", gpus.model, gpus.number)
	case f.Job.Image == "":
		return fault.Kubernetes.New("--image is missing: the container image with the kernel and gpurun")
	case name == "":
		return fault.Kubernetes.New("--claim is missing: the volume claim with input and output, such as --claim data")
	case !path.IsAbs(mount):
		return fault.Kubernetes.New("--claim %s: the folder must start with /", f.Claim)
	case f.Job.User == 0:
		return fault.Kubernetes.New("--user 0: pods do not run as root; name a user that can write to the volume")
	case f.job.options.JobFile != "":
		return fault.Kubernetes.New("--job-file: pods do not have it; gpurun plan --print shows its settings, which are flags of this command too")
	case f.job.options.Shard.NoClaim:
		return fault.Kubernetes.New("--no-claim does not fit gpurun submit k8s: pods take over the shards of lost ones, and stay until the output is merged")
	case config.Resume.Clean:
		return fault.Kubernetes.New("--clean does not fit gpurun submit k8s: remove %s.shards when the output is merged", strings.TrimSuffix(config.Output.Path, "/"))
	case !below(mount, config.Output.Path):
		return fault.Kubernetes.New("output %s is not on the volume, which is mounted at %s", config.Output.Path, mount)
	}
	for _, pair := range f.Job.NodeSelector {
		if !strings.Contains(pair, "=") {
			return fault.BadValue.New("--node-selector %q: must be KEY=VALUE", pair)
		}
	}
	f.Job.Claim, f.Job.Mount = name, mount
	return nil
}

// below reports whether a path in a pod is in a folder. Relative ones are: pods start there.
func below(dir, name string) bool {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return strings.HasPrefix(path.Clean(name)+"/", path.Clean(dir)+"/")
}
