package main

import (
	"slices"

	"github.com/gpurun/gpurun/gpu/lease"
	"github.com/gpurun/gpurun/internal/cluster"
	"github.com/gpurun/gpurun/orchestrator/spec"
)

// Headings of settings that only this command has.
const (
	groupJobFile  = "Job file"
	groupCluster  = "Cluster"
	groupMachines = "Several machines"
	groupServing  = "Page, API and metrics"
)

// headings are the groups in the order of the help, the most used first.
var headings = []string{
	groupJobFile, groupCluster, spec.GroupFolder, spec.GroupKernel, spec.GroupFetch, spec.GroupOutput, spec.GroupDevices, spec.GroupBatching,
	spec.GroupInput, spec.GroupResume, groupMachines, spec.GroupFailures, spec.GroupDisplay, groupServing,
}

// Settings of a job file that are not flags.
const (
	inputSetting = "input"
	stepsSetting = "steps"
	dirSetting   = "dir"
)

// options are the settings that only gpurun run has; embedding programs do not.
type options struct {
	JobFile string
	Lease   leaseOptions
	Shard   shardOptions
	Listen  listenOptions
	// Events, Report and Metrics are files; Events may be - for standard error.
	Events, Report, Metrics string
	Quiet                   bool
}

// whole is the Path of a setting that is a path.
func whole(value string, move func(string) string) string { return move(value) }

var yamlEndings = []string{"yaml", "yml"}

// runSettings are stored in options.
var runSettings = slices.Concat([]spec.Setting{
	{Name: "job-file", Short: "f", Group: groupJobFile, Place: spec.NotInFile, Field: "JobFile", Value: "FILE", Endings: yamlEndings, Common: true, Help: "read settings from this YAML FILE; flags and GPURUN_* take precedence (gpurun help job-file)"},
	{Name: dirSetting, Group: spec.GroupFolder, Place: spec.OnlyInFile, Help: "folder that the paths in this file are relative to, and in which its kernel runs (default: that of the file)"},
	{Name: inputSetting, Group: spec.GroupFolder, Place: spec.OnlyInFile, Kind: spec.Repeated, Path: moveInput, Help: "what to read, as on the command line"},

	{Name: "name", Group: spec.GroupDevices, Field: "Lease.Name", Help: "name of the job, for gpurun pause, gpurun gpus optimize and quotas"},
	{Name: "num-gpus", Group: spec.GroupDevices, Kind: spec.Int, Field: "Lease.NumGPUs", Least: 1, Help: "use this many GPUs, those with the most free memory (default: all free GPUs)"},
	{Name: "gpu-memory", Group: spec.GroupDevices, Kind: spec.Size, Field: "Lease.Memory", Least: lease.MiB, Help: "lease this much memory of each GPU (20G) and share it, instead of leasing whole GPUs"},
	{Name: "wait", Group: spec.GroupDevices, Kind: spec.Duration, Field: "Lease.Wait", Zero: -1, Help: "maximum time to wait for GPUs that others hold (default 30s, or what the services file says)"},
	{Name: "no-lease", Group: spec.GroupDevices, Kind: spec.Bool, Field: "Lease.NoLease", Help: "use GPUs without leasing them, even if others hold them (always on under Slurm and Kubernetes)"},
	servicesSetting("Lease.Services"),

	{Name: "shard", Group: groupMachines, Field: "Shard.Shard", Value: "I/N", Help: "compute shard I/N of the input, counted from 0, of a job that machines share through the output's folder; auto takes I from the scheduler (SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX) and N from the run that exists, auto+1000 adds to it, auto/16 names N"},
	{Name: "no-claim", Group: groupMachines, Kind: spec.Bool, Field: "Shard.NoClaim", Help: "of a shared job: exit when the shard is done instead of claiming shards that no machine computes, or that a much slower one computes last"},
	{Name: "claim-after", Group: groupMachines, Kind: spec.Duration, Field: "Shard.ClaimAfter", Default: cluster.DefaultLostAfter.String(), Help: "of a shared job: take a machine for lost that shows no sign of life for this long, and claim its shard; use the same value on all machines"},
	{Name: "merge", Group: groupMachines, Kind: spec.Bool, Field: "Shard.Merge", Help: "of a shared job: stay until all shards are done, and merge them into the output, unless another machine does (else: gpurun submit merge)"},

	{Name: "quiet", Short: "q", Group: spec.GroupDisplay, Kind: spec.Bool, Field: "Quiet", Common: true, Help: "show only errors and a summary of failed records"},
	{Name: "json-events", Group: spec.GroupDisplay, Field: "Events", Value: "FILE", Path: whole, Alone: "-", Help: "write events as JSON lines to standard error, or to a file with --json-events=FILE"},
	{Name: "report", Group: spec.GroupDisplay, Field: "Report", Value: "FILE", Endings: []string{"json"}, Path: whole, Help: "write the final report as JSON to this FILE"},
	{Name: "metrics-file", Group: groupServing, Field: "Metrics", Value: "FILE", Path: whole, Help: "write metrics to this FILE every 10s, for node_exporter's textfile collector (NAME.prom)"},
}, listenSettings("Listen.", "", "serve a page, an API and metrics of the job at this ADDRESS while it runs (127.0.0.1:9401)"))

// servicesSetting names the file with the rules of a host.
func servicesSetting(field string) spec.Setting {
	return spec.Setting{Name: "services", Group: spec.GroupDevices, Field: field, Value: "FILE", Endings: yamlEndings, Path: whole, Help: "YAML FILE with service quotas, memory limit and reserve (default " + lease.ConfigFile + ", if it exists)"}
}

// listenSettings say where and to whom a page, an API and metrics are served.
func listenSettings(in, address, help string) []spec.Setting {
	return []spec.Setting{
		{Name: "listen", Group: groupServing, Field: in + "Address", Value: "ADDRESS", Default: address, Common: true, Help: help},
		{Name: "listen-token", Group: groupServing, Field: in + "Token", Value: "FILE", Path: whole, Help: "FILE with the token, created if missing, which every request must then carry; required unless the address is a loopback one, where only changes need a token by default"},
		{Name: "tls-cert", Group: groupServing, Field: in + "Cert", Value: "FILE", Path: whole, Help: "serve HTTPS with the certificate in this FILE (PEM)"},
		{Name: "tls-key", Group: groupServing, Field: in + "Key", Value: "FILE", Path: whole, Help: "FILE with the private key of the certificate"},
		{Name: "insecure", Group: groupServing, Kind: spec.Bool, Field: in + "Insecure", Help: "allow other than loopback addresses without TLS: the token and all data can be read on the network"},
		{Name: "allow-host", Group: groupServing, Kind: spec.List, Field: in + "Hosts", Value: "NAME", Help: "also answer requests that address the server by this host NAME"},
	}
}

// jobSettings are all settings of run, in the order of the headings.
var jobSettings = slices.SortedStableFunc(slices.Values(slices.Concat(spec.Settings, runSettings)), func(a, b spec.Setting) int {
	return slices.Index(headings, a.Group) - slices.Index(headings, b.Group)
})

// settingsWhere returns the settings of a job that a command has.
func settingsWhere(has func(spec.Setting) bool) []spec.Setting {
	return slices.DeleteFunc(slices.Clone(spec.Settings), func(s spec.Setting) bool { return !has(s) })
}
